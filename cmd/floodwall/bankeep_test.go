// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBansOutliveReboot makes manual bans with and without an end, and reboots. The reboot is simulated by an unload that keeps the saved state.
// Afterwards the kernel must have the bans that still apply. It must not have bans that were lifted or have ended. A damaged file of bans must not
// prevent the policy from being restored.
func TestBansOutliveReboot(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newBootHost(t)
	bans := filepath.Join(h.state, "bans", "bans")
	must := func(args ...string) string {
		t.Helper()
		out, err := h.run(args...)
		if err != nil {
			t.Fatalf("floodwall %v: %v\n%s", args, err, out)
		}
		return out
	}
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		h.write("policy.yaml", "devices: [fw0]\nchecks: off\nsets: {bans: {dynamic: true, max: 1000, timeout: 1h}}\nrules: [{name: banned, from: $bans, then: drop}]\n")
		must("apply", "--boot", "--target", target, filepath.Join(h.files, "policy.yaml"))
		must("block", "198.51.100.1", "--for", "forever", "--why", "a scan")
		must("block", "198.51.100.1", "--for", "1h", "--origin", "fail2ban") // this must not change the ban by hand
		must("block", "198.51.100.2", "--for", "1h")
		must("block", "198.51.100.3", "--for", "1s")
		must("block", "192.0.3.0/24", "2001:db8:9::/48", "198.51.100.4")
		must("unblock", "198.51.100.4")
		before := must("blocked")
		for strings.Contains(before, "198.51.100.3 ") {
			time.Sleep(50 * time.Millisecond)
			before = must("blocked")
		}
		if out, err := h.reboot(); err != nil || !strings.Contains(out, "4 bans kept") {
			t.Fatalf("%s: reboot: %v\n%s", target, err, out)
		}
		after := must("blocked")
		for prefix, want := range map[string]bool{"198.51.100.1 ": true, "198.51.100.2 ": true, "198.51.100.3 ": false,
			"198.51.100.4 ": false, "192.0.3.0/24": true, "2001:db8:9::/48": true} {
			if strings.Contains(after, prefix) != want {
				t.Errorf("%s: %s is blocked: %v, want %v\nbefore:\n%safter:\n%s", target, prefix, !want, want, before, after)
			}
		}
		if !matches(`198\.51\.100\.1 +bans +forever +manual +a scan`, after) {
			t.Errorf("%s: the ban of a person is another:\n%s", target, after)
		}
		if target == "xdp" {
			h.wantVerdicts("after a reboot", map[string]string{
				"udp 198.51.100.1:5 > 192.0.2.1:9": "drop banned", "udp 198.51.100.4:5 > 192.0.2.1:9": "pass default",
			})
		}
		info, err := os.Stat(bans)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %s has mode %v (%v)", target, bans, info.Mode(), err)
		}
		text, err := os.ReadFile(bans)
		if err == nil {
			text[len(text)/2] ^= 1
			err = os.WriteFile(bans, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		out, err := h.reboot()
		if err != nil || !strings.Contains(out, "applied generation 1") {
			t.Errorf("%s: reboot with a damaged file: %v\n%s", target, err, out)
		}
		must("unload")
		if _, err := os.Stat(filepath.Dir(bans)); err == nil {
			t.Errorf("%s: unload has left %s", target, filepath.Dir(bans))
		}
	}
}

// TestBanStream blocks many entries. The file must only grow by the new entries.
func TestBanStream(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newBootHost(t)
	h.write("policy.yaml", "devices: [fw0]\nchecks: off\nsets: {bans: {dynamic: true, max: 100000, timeout: 1h}}\nrules: [{name: banned, from: $bans, then: drop}]\n")
	if out, err := h.run("apply", "--boot", filepath.Join(h.files, "policy.yaml")); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	var list strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&list, "198.18.%d.%d\n", i>>8, i&255) // no network of a host or of its resolver has them (RFC 2544)
	}
	h.write("list", list.String())
	for range 2 {
		if out, err := h.shell("block - <" + filepath.Join(h.files, "list")); err != nil {
			t.Fatalf("block: %v\n%s", err, out)
		}
	}
	info, err := os.Stat(filepath.Join(h.state, "bans", "bans"))
	if err != nil || info.Size() < 2*20000*40 || info.Size() > 2*20000*80 {
		t.Errorf("the file has %d bytes (%v)", info.Size(), err)
	}
	if out, err := h.reboot(); err != nil || !strings.Contains(out, "20,000 bans kept") {
		t.Errorf("reboot: %v\n%s", err, out)
	}
}

// TestBlockLines blocks lines with durations and reasons of their own. A line that cannot be parsed must be named in an error, and must change
// nothing.
func TestBlockLines(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newBootHost(t)
	h.write("policy.yaml", "devices: [fw0]\nchecks: off\nsets: {bans: {dynamic: true, max: 1000, timeout: 1h}}\nrules: [{name: banned, from: $bans, then: drop}]\n")
	if out, err := h.run("apply", filepath.Join(h.files, "policy.yaml")); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	h.write("list", "# a list\n198.51.100.1\n198.51.100.2 for=10m why=guesses passwords\n198.51.100.3-198.51.100.4 for=forever\n"+
		"198.51.100.5 for=soon\n198.51.100.6-198.51.100.9 fro=1h\n198.51.100.10 why=\n198.51.100.11 # for=1d\n")
	out, err := h.shell("block - --for 2h --why 'by list' <" + filepath.Join(h.files, "list"))
	for _, want := range []string{"line 5: for \"soon\" is not a time", "line 6: unknown term \"fro\"", "blocked 6 entries"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("block says not %s: %v\n%s", want, err, out)
		}
	}
	list, err := h.run("blocked")
	for _, want := range []string{
		`100\.1 +bans +(2h|1h59m\S*) +manual +by list\n`, `100\.2 +bans +(10m|9m\S*) +manual +guesses passwords\n`, `100\.3 +bans +forever +manual +by list\n`,
		`100\.4 +bans +forever`, `100\.10 +bans +(2h|1h59m\S*) +manual +by list\n`, `100\.11 +bans +(2h|1h59m\S*) `,
	} {
		if err != nil || !matches(want, list) {
			t.Errorf("the list has not %s: %v\n%s", want, err, list)
		}
	}
	if strings.Count(list, "\n") != 7 {
		t.Errorf("the list has other entries:\n%s", list)
	}
}

// TestBansAfterFullDisk makes bans while the disk is full. The command must say that the bans will not survive a reboot. When the disk has space
// again, the daemon must save the bans, and they must be in force after a reboot.
func TestBansAfterFullDisk(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newBootHost(t)
	if err := os.MkdirAll(h.state, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", h.state, "tmpfs", 0, "size=1m,mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(h.state, unix.MNT_DETACH) })
	h.write("policy.yaml", "devices: [fw0]\nchecks: off\nsets: {bans: {dynamic: true, max: 10000}}\nrules: [{name: banned, from: $bans, then: drop}]\n")
	if out, err := h.run("apply", "--boot", filepath.Join(h.files, "policy.yaml")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	daemon := startDaemon(t, "--state", h.state)
	fill := filepath.Join(h.state, "fill")
	if err := os.WriteFile(fill, make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	list := []string{"block"}
	for i := range 1000 {
		list = append(list, fmt.Sprintf("198.51.%d.%d", i/250, i%250))
	}
	if out, err := h.run(list...); err != nil || !strings.Contains(out, "does not last over a reboot: bans: ") {
		t.Fatalf("block with a full disk: %v\n%s", err, out)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the bans on the disk", func() bool {
		text, err := os.ReadFile(filepath.Join(h.state, "bans", "bans"))
		return err == nil && strings.Count(string(text), "\n") > 1000
	})
	daemon.kill()
	if out, err := h.reboot(); err != nil || !strings.Contains(out, "1,000 bans kept") {
		t.Fatalf("reboot: %v\n%s", err, out)
	}
}
