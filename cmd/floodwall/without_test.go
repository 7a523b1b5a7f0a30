package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// hide makes programs of this host look as if they were not installed, for the mount namespace of the test.
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

// TestWithoutNft applies a policy that needs nft beside XDP on a host that does not have it. The remedy is the package of nft, whether
// the host has iptables, with which the policy is in force, or no other tool.
func TestWithoutNft(t *testing.T) {
	if !inside(t) {
		return
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, policy, "devices: [fw0]\ndefault: pass\nrules:\n  - {name: open, state: [established], then: pass}\n  - {name: dns, proto: udp, port: 53, then: drop}\n")
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
