// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// hide makes programs seem not to be installed, within the mount namespace of the test.
func hide(t *testing.T, names ...string) {
	t.Helper()
	empty := filepath.Join(t.TempDir(), "empty")
	writeFile(t, empty, "")
	for _, name := range names {
		for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin", "/usr/local/sbin") {
			path, err := exec.LookPath(filepath.Join(dir, name))
			if err != nil {
				continue
			}
			if err := unix.Mount(empty, path, "", unix.MS_BIND, ""); err != nil {
				t.Fatalf("hiding %s: %v", path, err)
			}
		}
	}
}

// TestWithoutNft applies a policy that needs both nft and XDP, on a host without nft. In both cases, with and without iptables on the host, the
// remedy must name the package of nft. With iptables, the policy must be in force.
func TestWithoutNft(t *testing.T) {
	if !inside(t) {
		return
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, policy, "devices: [fw0]\ndefault: pass\nchecks: off\nrules:\n  - {name: open, state: [established], then: pass}\n  - {name: dns, proto: udp, port: 53, then: drop}\n")
	const remedy = "it is in the package nftables of Debian and Ubuntu: apt install nftables"
	hide(t, "nft")
	if out, err := floodwall("apply", policy, "--target", "nftables"); err == nil || !strings.Contains(out, "floodwall: hint: "+remedy) {
		t.Errorf("--target nftables: %v\n%s", err, out)
	}
	if out := mustFloodwall(t, "apply", policy); !strings.Contains(out, "floodwall: note: target iptables, not xdp: ") || !strings.Contains(out, remedy) {
		t.Errorf("with iptables it says nothing of nft:\n%s", out)
	}
	mustFloodwall(t, "unload")
	hide(t, "ipset", "iptables-restore", "iptables-save", "ip6tables-restore", "ip6tables-save")
	if out, err := floodwall("apply", policy); err == nil || !strings.HasSuffix(out, "floodwall: hint: "+remedy+"\n") || strings.Count(out, "hint: ") != 1 {
		t.Errorf("without any tool: %v\n%s", err, out)
	}
}

// TestHiddenState runs commands where /sys has no BPF file system, as under `ip netns exec`. The remedy must name another way to enter the namespace.
func TestHiddenState(t *testing.T) {
	if !inside(t) {
		return
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, policy, "devices: [fw0]\ndefault: pass\nchecks: off\n")
	mustFloodwall(t, "apply", policy)
	if err := unix.Mount("tmpfs", "/sys", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"status", "unload", "repair"} {
		out, err := floodwall(command)
		if err == nil || !strings.Contains(out, "nothing is loaded") || !strings.Contains(out, "use `nsenter --net=/run/netns/NS`") {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	if err := unix.Unmount("/sys", 0); err != nil {
		t.Fatal(err)
	}
	mustFloodwall(t, "unload")
}

// TestWithoutIPv6 applies a policy on iptables while ip6tables fails, as on a host without IPv6. IPv4 must be filtered, and unload must remove
// everything. If a device has an IPv6 address that other hosts can reach, the device must not stay unfiltered.
func TestWithoutIPv6(t *testing.T) {
	if !inside(t) {
		return
	}
	s, dir := newLeftSite(t), t.TempDir()
	for _, name := range []string{"ip6tables", "ip6tables-save", "ip6tables-restore"} {
		file := filepath.Join(dir, name)
		writeFile(t, file, "#!/bin/sh\necho \"$0: can't initialize: Address family not supported by protocol\" >&2\nexit 3\n")
		if err := os.Chmod(file, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	s.says(0, "apply "+s.left+" --target iptables", "note: IPv6 is not filtered: ", "Address family not supported")
	if s.arrives() {
		t.Error("IPv4 is not filtered")
	}
	s.says(0, "status")
	s.says(0, "unload")
	s.gone("after unload")
	sh(t, "ip -6 addr add 2001:db8::1/64 dev fw0 nodad")
	s.says(1, "apply "+s.left+" --target iptables", "address 2001:db8::1, which would not be filtered", "--target nftables")
	s.says(0, "apply "+s.left+" --target nftables")
	s.says(0, "unload")
	s.gone("after unload of another target")
}

// TestWithoutBPF applies a policy in a user namespace that may change nftables but may not call bpf(2). The error must name the cause, and the
// targets that work there.
func TestWithoutBPF(t *testing.T) {
	if !inside(t) {
		return
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, policy, passPolicy)
	out, err := exec.Command("unshare", "--user", "--map-root-user", "--net", "floodwall", "apply", policy, "--target", "nftables").CombinedOutput()
	if exitCode(err) != 1 || !strings.Contains(string(out), "does not permit bpf(2) in this user namespace") || !strings.Contains(string(out), "| nft -f -") {
		t.Errorf("%v\n%s", err, out)
	}
}
