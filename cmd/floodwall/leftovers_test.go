// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// leftPolicy drops packets to udp/9; passPolicy drops none.
const (
	leftPolicy = "devices: [fw0]\ndefault: pass\nchecks: off\nsets: {bans: {dynamic: true, max: 100}}\nrules:\n" +
		"  - {name: banned, from: $bans, then: drop}\n  - {name: old, proto: udp, port: 9, then: drop}\n"
	passPolicy = "devices: [fw0]\ndefault: pass\nchecks: off\nsets: {bans: {dynamic: true, max: 100}}\nrules:\n  - {name: banned, from: $bans, then: drop}\n"
)

// leftSite is a host whose rules are saved and restored.
type leftSite struct {
	*testing.T
	left, pass  string // files of policies
	asked, last *net.UDPConn
}

func newLeftSite(t *testing.T) *leftSite {
	s := &leftSite{T: t, left: filepath.Join(t.TempDir(), "left.yaml"), pass: filepath.Join(t.TempDir(), "pass.yaml")}
	writeFile(t, s.left, leftPolicy)
	writeFile(t, s.pass, passPolicy)
	for _, name := range []string{"all", "default", "fw0"} {
		os.WriteFile("/proc/sys/net/ipv4/conf/"+name+"/rp_filter", []byte("0"), 0)
	}
	s.asked, s.last = listenUDP(t, "0.0.0.0:9"), listenUDP(t, "0.0.0.0:10")
	return s
}

// arrives sends a packet to udp/9, followed by a packet that no policy drops. It reports whether the first packet arrived.
func (s *leftSite) arrives() bool {
	s.Helper()
	defer testutil.OnOneCPU(s)() // so that the second comes in behind the first
	var frames [][]byte
	for _, port := range []int{9, 10} {
		spec, err := packet.Parse(fmt.Sprintf("udp 198.51.100.7:5 > 192.0.2.1:%d", port))
		if err != nil {
			s.Fatal(err)
		}
		frame := spec.Frame()
		copy(frame, "\xff\xff\xff\xff\xff\xff")
		frames = append(frames, frame)
	}
	defer testutil.OnOneCPU(s)() // the frame that nothing drops must come last
	sent := false
	if err := testutil.SendFrames("fw1", func() [][]byte {
		if sent {
			return nil
		}
		sent = true
		return frames
	}); err != nil {
		s.Fatal(err)
	}
	if !testutil.Arrives(s, s.last, filteredAgain) {
		s.Fatal("a packet that nothing drops does not arrive")
	}
	return testutil.Arrives(s, s.asked, 10*time.Millisecond)
}

// run runs commands in a shell.
func (s *leftSite) run(lines string) string {
	s.Helper()
	out, err := exec.Command("sh", "-e", "-c", lines).CombinedOutput()
	if err != nil {
		s.Fatalf("%s: %v\n%s", lines, err, out)
	}
	return string(out)
}

// says runs a command. It checks the exit code, and that the output contains all the texts.
func (s *leftSite) says(code int, args string, texts ...string) {
	s.Helper()
	out, err := floodwall(strings.Fields(args)...)
	ok := exitCode(err) == code
	for _, text := range texts {
		ok = ok && strings.Contains(out, text)
	}
	if !ok {
		s.Errorf("%s ends with %d, and says\n%s\nwant %d, and %q", args, exitCode(err), out, code, texts)
	}
}

// gone checks that netfilter contains no rules of Floodwall, and that packets to udp/9 arrive.
func (s *leftSite) gone(when string) {
	s.Helper()
	all := s.run("nft list ruleset 2>&1; iptables-legacy-save; ip6tables-legacy-save; ipset list -n")
	if strings.Contains(strings.ToLower(all), "floodwall") {
		s.Errorf("%s, netfilter holds\n%s", when, all)
	}
	if !s.arrives() {
		s.Errorf("%s, packets do not come in that no policy drops", when)
	}
}

// TestRestoredRules saves the rules of a policy and restores them, with each tool that can do so. It checks the reaction of each command to the
// restored rules.
func TestRestoredRules(t *testing.T) {
	if !inside(t) {
		return
	}
	s := newLeftSite(t)
	for _, row := range []struct{ target, save, restore, name string }{
		{"nftables", "nft list ruleset >rules", "nft -f rules", "table inet floodwall-1"},
		{"iptables", "ipset save >sets; iptables-save >rules", "ipset restore <sets; iptables-restore <rules", "the chains FLOODWALL-1-* of iptables"},
		{"iptables", "ipset save >sets; iptables-save | grep -v '^# W' >rules", "ipset restore <sets; iptables-legacy-restore <rules", "the chains FLOODWALL-1-* of iptables-legacy"},
	} {
		t.Chdir(t.TempDir())
		mustFloodwall(t, "apply", s.left, "--target", row.target)
		s.run(row.save)
		mustFloodwall(t, "unload")
		s.gone("after unload")
		restore := func() {
			s.Helper()
			s.run(row.restore)
			if s.arrives() {
				s.Fatalf("%s: restored rules do not drop", row.restore)
			}
		}

		restore()
		s.says(1, "status", "nothing is loaded, but netfilter holds "+row.name, "floodwall unload")
		s.says(1, "unblock 198.51.100.9", "netfilter holds "+row.name)
		s.says(1, "doctor", "floodwall unload")
		s.says(0, "unload")
		s.gone(row.name + ": after the unload of nothing else")
		s.says(1, "unload", "nothing is loaded")

		restore()
		s.says(0, "apply "+s.pass+" --target xdp", row.name, "is removed")
		s.gone(row.name + ": after an apply")

		restore()
		s.says(0, "block 198.51.100.9", "warning: netfilter holds "+row.name)
		s.says(0, "unblock 198.51.100.9", "warning: netfilter holds "+row.name)
		s.says(1, "status", "netfilter holds "+row.name)
		s.says(0, "repair", row.name+" removed from netfilter")
		s.gone(row.name + ": after a repair")
		s.says(0, "status")

		restore()
		s.says(0, "unload")
		s.gone(row.name + ": after an unload")
	}
}

// TestSavedWithout saves the rules of the host through the filter that apply prints. The result must have the operator's rules and no rule of the
// policy. Both tools must accept it: nft refuses rules that iptables-nft has made with extensions, and iptables-restore refuses sets that do not
// exist.
func TestSavedWithout(t *testing.T) {
	if !inside(t) {
		return
	}
	s := newLeftSite(t)
	s.run("iptables-nft -A INPUT -p tcp --dport 2222 -j DROP")
	t.Chdir(t.TempDir())
	limited := strings.Replace(leftPolicy, "- {name: old", "- {name: fast, proto: udp, over: {rate: 5/s, per: from/32}, then: drop}\n  - {name: old", 1)
	writeFile(t, "limited.yaml", limited) // a limit is an extension
	out := mustFloodwall(t, "apply", "limited.yaml", "--target", "iptables")
	filter := regexp.MustCompile("iptables-save \\| ([^`]*)`").FindStringSubmatch(out)
	if filter == nil {
		t.Fatalf("apply names no filter:\n%s", out)
	}
	for _, row := range []struct{ save, try string }{
		{"iptables-nft-save", "iptables-nft-restore --test saved"},
		{"nft list ruleset", "nft -c -f saved"},
	} {
		s.run(row.save + " | " + filter[1] + " >saved")
		saved := s.run("cat saved")
		if strings.Contains(strings.ToLower(saved), "floodwall") || !strings.Contains(saved, "2222") {
			t.Errorf("%s through the filter:\n%s", row.save, saved)
		}
		s.run(row.try)
	}
	mustFloodwall(t, "unload")
}

// dying is a script in place of nft that crashes at each listing.
const dying = "#!/bin/sh\nfor a in \"$@\"; do case \"$a\" in *list*) kill -SEGV $$;; esac; done\nexec %s \"$@\"\n"

// TestUnloadWithoutPrograms unloads a policy while netfilter programs fail or are missing. Either unload removes everything. Or it must fail, name
// the program, and keep the state until everything is removed. If nft crashes at each listing, unload must still work, because it needs no listing.
func TestUnloadWithoutPrograms(t *testing.T) {
	if !inside(t) {
		return
	}
	s := newLeftSite(t)
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	dir, path := t.TempDir(), os.Getenv("PATH")
	writeFile(t, filepath.Join(dir, "nft"), fmt.Sprintf(dying, nft))
	if err := os.Chmod(filepath.Join(dir, "nft"), 0o755); err != nil {
		t.Fatal(err)
	}
	both := filepath.Join(dir, "both.yaml")
	writeFile(t, both, strings.Replace(leftPolicy, "proto: udp", "state: [new], proto: udp", 1))
	for _, args := range [][]string{{both, "--target", "xdp"}, {s.left, "--target", "nftables"}} {
		mustFloodwall(t, append([]string{"apply"}, args...)...)
		os.Setenv("PATH", dir+":"+path)
		s.says(0, "status")
		if s.arrives() {
			t.Error("the policy does not filter")
		}
		s.says(0, "apply "+s.left+" --target nftables")
		s.says(0, "unload")
		os.Setenv("PATH", path)
		s.gone("after unload with an nft that dies")
	}
	mustFloodwall(t, "apply", s.left, "--target", "nftables")
	show := s.hide("nft")
	s.says(0, "unload")
	show()
	s.gone("after unload without nft")

	mustFloodwall(t, "apply", s.left, "--target", "iptables")
	s.run("rm -rf /sys/fs/bpf/floodwall") // removes the whole state
	show = s.hide("iptables-restore", "iptables-nft-restore")
	s.says(1, "unload", "the chains FLOODWALL-1-* of iptables", "apt install iptables")
	s.says(1, "apply "+s.pass+" --target xdp", "the chains FLOODWALL-1-* of iptables", "apt install iptables")
	s.says(1, "status", "nothing is loaded, but netfilter holds the chains FLOODWALL-1-* of iptables")
	show()
	s.says(0, "unload")
	s.gone("after unload without the state")
}

// hide hides programs until the caller calls show.
func (s *leftSite) hide(names ...string) (show func()) {
	hide(s.T, names...)
	return func() {
		for _, name := range names {
			for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin", "/usr/local/sbin") {
				for unix.Unmount(filepath.Join(dir, name), unix.MNT_DETACH) == nil {
				}
			}
		}
	}
}
