// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// program is the path of the floodwall command.
var program string

// programVar is the environment variable with the path of a command that is already built.
const programVar = "FLOODWALL_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// build builds the command from the current source. The inner process of a test uses the command that the outer process has built.
func build() error {
	if program = os.Getenv(programVar); program != "" {
		return nil
	}
	dir, err := filepath.Abs("../../build/hosts")
	if err != nil {
		return err
	}
	program = filepath.Join(dir, "floodwall")
	cmd := exec.Command("scripts/go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "./cmd/floodwall")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the program: %w\n%s", err, out)
	}
	return os.Setenv(programVar, program)
}

// target is a target with a mode, and the flags that select them.
type target struct{ name, flags string }

// targets are all targets. The first one is the default.
var targets = []target{
	{"auto", ""},
	{"native", "--target xdp --mode native"},
	{"nftables", "--target nftables"},
	{"iptables", "--target iptables"},
	{"tc", "--target xdp --mode tc"},
	{"generic", "--target xdp --mode generic"},
}

// TestHosts runs the life of a policy on each host of the table. FLOODWALL_GUEST=1 selects the rows that need modules which a kernel may lack. The
// other rows are then left out, because an emulated CPU is slow.
func TestHosts(t *testing.T) {
	for i, h := range hosts {
		if h.guest != (os.Getenv("FLOODWALL_GUEST") != "") {
			continue
		}
		t.Run(strings.ReplaceAll(h.name, " ", "-"), func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			testutil.RequireTool(t, "nsenter")
			before := testutil.Now()
			s := newScene(t, h)
			s.coverUnits()
			s.init()
			s.listen(baseLater + ";" + h.later)
			s.open()
			s.flooded()
			for n, on := range targets {
				// The short form runs auto and one other target, which differs from row to row, or those that the row names. On these, it only checks
				// that Floodwall filters and leaves nothing behind.
				if !testutil.Long() && !h.runs(i, n) {
					continue
				}
				t.Run(on.name, func(t *testing.T) {
					of := *s
					of.T, of.on = t, on.name
					of.life(on, testutil.Long() || n == 0)
				})
			}
			if found := testutil.Leftovers(before); found != nil && h.keeps == "" {
				t.Errorf("left in the kernel:\n%s", strings.Join(found, "\n"))
			}
		})
	}
}

// coverUnits mounts an empty directory over the units of systemd, so that the machine's systemd does not see the units that `apply --boot` writes.
func (s *scene) coverUnits() {
	s.Helper()
	const dir = "/etc/systemd/system"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		s.Fatal(err)
	}
}

// init runs the command init, which writes the first policy. If the row has a policy of its own, it writes this one instead.
func (s *scene) init() {
	s.Helper()
	if s.host.policy != "" {
		s.write("policy.yaml", s.host.policy)
		return
	}
	s.Logf("init: %s", s.floodwall(append([]string{"init"}, strings.Fields(s.host.flags)...)...))
	text, err := os.ReadFile(filepath.Join(s.dir, "policy.yaml"))
	if err != nil {
		s.Fatal(err)
	}
	s.Logf("%s", text)
}

// life runs the life of a policy on a target. If whole is false, it leaves out the middle part.
func (s *scene) life(on target, whole bool) {
	s.Helper()
	before := s.state()
	s.Cleanup(func() { s.run(program, "unload") }) // if the test ends early
	said, ok := s.apply(on)
	if !ok {
		s.run(program, "unload") // the target may filter in part
		s.same("after an apply that was refused", before)
		return
	}
	s.find(said, s.host.says)
	if on.name == "nftables" || on.name == "iptables" {
		s.remedied(s.find(said, s.host.remedy))
	}
	if m := saveBy.FindStringSubmatch(said); m != nil {
		s.filter = m[1]
	}
	s.answers("after apply", s.asks())
	if on.name != "native" {
		s.flooded()
	} else if s.host.flood != "" { // the kernel does not send XDP's cookies
		s.find(said, "what XDP answers is lost: .*`--mode auto` runs it in (tc|generic) mode")
	}
	s.status("after apply")
	if whole {
		s.changes(on)
	}
	s.floodwall("unload")
	s.same("after unload", before)
	s.answers("after unload", slices.DeleteFunc(s.asks(), func(a ask) bool { return a.without() != a.want }))
}

var saveBy = regexp.MustCompile("save by `iptables-save \\| ([^`]*)`")

// find checks that the output of apply matches a regular expression. It returns the first group of the match, or the whole match if there is no
// group.
func (s *scene) find(said, pattern string) string {
	s.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(said)
	if m == nil {
		s.Fatalf("apply does not say %q:\n%s", pattern, said)
	}
	return m[len(m)-1]
}

// remedied runs the command that apply names as a remedy, `sysctl -w KEY=0 …`. It undoes the command when the test on this target ends.
func (s *scene) remedied(command string) {
	s.Helper()
	if command != "" {
		s.sh("host " + command)
		s.Cleanup(func() { s.sh("host " + strings.ReplaceAll(command, "=0", "=1")) })
	}
}

// changes runs the middle part of a policy's life: a daemon, a second apply, a block, a rollback, and a reboot.
func (s *scene) changes(on target) {
	s.Helper()
	stop := s.daemon()
	s.apply(on)
	s.answers("after a second apply beside the daemon", s.asks())
	s.blocked()
	s.status("beside the daemon")
	stop()
	s.floodwall("rollback")
	s.answers("after rollback", s.asks())
	s.reboot()
	s.answers("after a reboot", s.asks())
	s.status("after a reboot")
}

// apply runs the command apply. It returns the output, and whether the policy is in force. A row may allow that apply fails for a certain reason.
func (s *scene) apply(on target) (out string, ok bool) {
	s.Helper()
	args := append([]string{program, "apply", "--boot", "policy.yaml"}, strings.Fields(on.flags)...)
	out, err := s.run(args...)
	for _, said := range []string{s.host.refuses, s.host.cannot} {
		if (err != nil || said == s.host.cannot) && said != "" && regexp.MustCompile(said).MatchString(out) && (said == s.host.refuses || on.flags != "") {
			s.Logf("apply: refused: %s", out)
			return out, false
		}
	}
	if err != nil {
		s.Fatalf("apply %s: %v\n%s", on.flags, err, out)
	}
	s.Logf("apply: %s", out)
	return out, true
}

// daemon starts the daemon, and returns a function that stops it.
func (s *scene) daemon() (stop func()) {
	s.Helper()
	cmd := s.command(program, "daemon")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := testutil.Start(cmd); err != nil {
		s.Fatal(err)
	}
	end := func() { cmd.Process.Signal(unix.SIGTERM); cmd.Wait() }
	s.Cleanup(end)
	ready := func() bool { _, err := os.Stat("/run/floodwall/read.sock"); return err == nil }
	if !testutil.Eventually(time.Minute, ready) {
		end()
		s.Fatalf("the daemon does not serve: %s", said.Bytes())
	}
	return func() {
		s.Helper()
		end()
		if bytes.Contains(said.Bytes(), []byte("level=ERROR")) {
			s.Errorf("the daemon says: %s", said.Bytes())
		}
	}
}

// blocked blocks an address and unblocks it again. It checks the answers to this address after each step.
func (s *scene) blocked() {
	s.Helper()
	const address = "198.51.100.77"
	asks := func(want string) []ask {
		return s.parse("out@" + address + " udp 192.0.2.1:5000 " + want + "\n out udp 192.0.2.1:5000 served")
	}
	s.floodwall("block", address)
	s.answers("while an address is blocked", asks("closed"))
	s.floodwall("unblock", address)
	s.answers("after it is unblocked", asks("served"))
}

// status checks that the command status exits with 0.
func (s *scene) status(when string) {
	s.Helper()
	if out, err := s.run(program, "status"); err != nil {
		s.Errorf("status %s: %v\n%s", when, err, out)
	}
}

// reboot simulates a reboot. It removes the host's state from the kernel, and then runs the steps of a boot in order.
func (s *scene) reboot() {
	s.Helper()
	s.sh(s.host.saved)
	if s.host.enter == "" {
		for unix.Unmount("/sys/fs/bpf", unix.MNT_DETACH) == nil {
		}
		if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0700"); err != nil {
			s.Fatal(err)
		}
	}
	s.sh(`host nft flush ruleset
for v in '' 6; do for table in $(host cat /proc/net/ip${v}_tables_names 2>/dev/null); do
	host ip${v}tables-legacy -t $table -F; host ip${v}tables-legacy -t $table -X
done; done
host ipset destroy`)
	s.sh(s.host.stored)
	s.floodwall("apply", "--boot-restore")
	if s.host.stored == "" {
		s.sh(s.host.rules)
	}
}

// state returns the state that must be the same after Floodwall is gone. The keys are the commands that show it. The state of links is left out,
// because the kernel reports the state of a new bridge a second late.
func (s *scene) state() map[string]string {
	s.Helper()
	state := map[string]string{}
	for _, look := range []string{
		"nft -s list ruleset", "ipset save", "ip -o link | sed 's/ state [A-Z]*//'", "ip rule", "ip -4 route show table all", "ls /run/floodwall",
		"for d in $(ls /sys/class/net); do tc qdisc show dev $d; done", "sysctl net.ipv4.tcp_syncookies net.ipv4.tcp_timestamps",
	} {
		out, _ := s.run("bash", "-c", "{ "+look+"; } 2>/dev/null") // ip sometimes prints an error about a peer whose namespace has no name
		out = strings.ReplaceAll(out, "\n\n", "\n")
		out = emptyTable.ReplaceAllString(emptyChain.ReplaceAllString(out, ""), "")
		tables := strings.SplitAfter(out, "\n}\n")
		slices.Sort(tables) // nft lists them in the order in which they were made
		state[look] = strings.Join(tables, "")
	}
	return state
}

// emptyChain and emptyTable match chains that decide nothing, and empty tables. iptables-nft leaves these after its last rule, and also makes them
// when it lists rules.
var (
	emptyChain = regexp.MustCompile(`(?m)^\tchain [A-Z]+ \{\n\t\ttype [^\n]*policy accept;\n\t\}\n`)
	emptyTable = regexp.MustCompile(`(?m)^table ip6? [a-z]+ \{\n\}\n`)
)

// same checks that the state equals before, and that no pins are left.
func (s *scene) same(when string, before map[string]string) {
	s.Helper()
	for look, now := range s.state() {
		if now != before[look] {
			s.Errorf("%s: %s: it was\n%s\nand is\n%s", when, look, before[look], now)
		}
	}
	if found := testutil.LeftoverPins(); found != nil {
		s.Errorf("%s: left behind: %v", when, found)
	}
}
