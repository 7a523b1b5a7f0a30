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
	asked, last net.PacketConn
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

// arrives sends a packet to udp/9, and behind it one that nothing drops, and tells whether the former came in.
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
	buffer := make([]byte, 2048)
	s.last.SetReadDeadline(time.Now().Add(filteredAgain))
	if _, _, err := s.last.ReadFrom(buffer); err != nil {
		s.Fatalf("a packet that nothing drops: %v", err)
	}
	s.asked.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, _, err := s.asked.ReadFrom(buffer)
	return err == nil
}

// run runs commands of a shell.
func (s *leftSite) run(lines string) string {
	s.Helper()
	out, err := exec.Command("sh", "-e", "-c", lines).CombinedOutput()
	if err != nil {
		s.Fatalf("%s: %v\n%s", lines, err, out)
	}
	return string(out)
}

// says runs a command that ends with a code, and whose output has all of some texts.
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

// gone checks that the kernel holds nothing of the instance in netfilter, and that packets come in.
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

// TestRestoredRules has saved rules of a policy come back, of each tool that makes some, and looks at them with each command.
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

// TestSavedWithout saves rules through the filter that apply names. What is left has the operator's rules and none of the policy's, and both
// tools take it: nft refuses what iptables-nft has made with extensions, and iptables-restore sets that are not there.
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

// dying is a program in the place of nft that dies at each listing.
const dying = "#!/bin/sh\nfor a in \"$@\"; do case \"$a\" in *list*) kill -SEGV $$;; esac; done\nexec %s \"$@\"\n"

// TestUnloadWithoutPrograms has the programs of netfilter fail, or be missing, when a policy is unloaded: all of it goes, or the command
// fails, names the program, and keeps the state until all has gone.
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
		s.says(1, "status", "segmentation fault")
		if s.arrives() {
			t.Error("the policy does not filter")
		}
		s.says(1, "apply "+s.left+" --target nftables", "segmentation fault")
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
	s.run("rm -rf /sys/fs/bpf/floodwall") // whatever was known of it
	show = s.hide("iptables-restore", "iptables-nft-restore")
	s.says(1, "unload", "the chains FLOODWALL-1-* of iptables", "apt install iptables")
	s.says(1, "apply "+s.pass+" --target xdp", "the chains FLOODWALL-1-* of iptables", "apt install iptables")
	s.says(1, "status", "nothing is loaded, but netfilter holds the chains FLOODWALL-1-* of iptables")
	show()
	s.says(0, "unload")
	s.gone("after unload without the state")
}

// hide is hide until the returned function is called.
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
