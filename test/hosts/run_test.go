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

// program is the path of the command floodwall.
var program string

// programVar names it in the environment, where it is built already.
const programVar = "FLOODWALL_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// build builds the command as it is now, unless a process of a test begins here.
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

// target is a way to filter, and the flags that choose it.
type target struct{ name, flags string }

// targets are all. The first is what users get.
var targets = []target{
	{"auto", ""},
	{"native", "--target xdp --mode native"},
	{"nftables", "--target nftables"},
	{"iptables", "--target iptables"},
	{"generic", "--target xdp --mode generic"},
}

// TestHosts takes a policy through its life on each host of the table. FLOODWALL_GUEST=1 has the rows that need modules of the kernel which
// it may lack, and no others: an emulated processor is slow.
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
				// In the short form: auto, and of another target, in turn, that it filters and leaves nothing.
				if !testutil.Long() && n > 0 && n != 1+i%(len(targets)-1) {
					continue
				}
				t.Run(on.name, func(t *testing.T) {
					of := *s
					of.T = t
					of.life(on, testutil.Long() || n == 0)
				})
			}
			if found := testutil.Leftovers(before); found != nil && h.keeps == "" {
				t.Errorf("left in the kernel:\n%s", strings.Join(found, "\n"))
			}
		})
	}
}

// coverUnits keeps the units of `apply --boot` from the machine's systemd.
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

// init has the first policy written, unless the row has one of its own.
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

// life is that of a policy on a target: the whole of it, or its begin and its end.
func (s *scene) life(on target, whole bool) {
	s.Helper()
	before := s.state()
	s.Cleanup(func() { s.run(program, "unload") }) // where the test ends early
	said, ok := s.apply(on)
	if !ok {
		s.run(program, "unload") // what filters in part
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
	} else if s.host.flood != "" { // the kernel does not send the cookies
		s.find(said, "what XDP answers is lost: .*`--mode auto` runs it in generic mode")
	}
	s.status("after apply")
	if whole {
		s.changes(on)
	}
	s.floodwall("unload")
	s.same("after unload", before)
	s.answers("after unload", slices.DeleteFunc(s.asks(), func(a ask) bool { return a.want == "closed" }))
}

var saveBy = regexp.MustCompile("save by `iptables-save \\| ([^`]*)`")

// find has the first group, if there is one, of a regular expression that the output of apply must match.
func (s *scene) find(said, pattern string) string {
	s.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(said)
	if m == nil {
		s.Fatalf("apply does not say %q:\n%s", pattern, said)
	}
	return m[len(m)-1]
}

// remedied runs the command that apply names, `sysctl -w KEY=0 …`, until the life on this target ends.
func (s *scene) remedied(command string) {
	s.Helper()
	if command != "" {
		s.sh("host " + command)
		s.Cleanup(func() { s.sh("host " + strings.ReplaceAll(command, "=0", "=1")) })
	}
}

// changes are what comes between.
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

// apply has the output, and reports whether the policy is in force: a row may allow that it is refused, with a reason.
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

// daemon starts it, and returns what ends it.
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

// blocked has an address blocked and unblocked.
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

// status has it exit with 0.
func (s *scene) status(when string) {
	s.Helper()
	if out, err := s.run(program, "status"); err != nil {
		s.Errorf("status %s: %v\n%s", when, err, out)
	}
}

// reboot empties the kernel, as far as it is the host's, and has what is restored at boot come in its order.
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

// state is what Floodwall must not leave changed. The kernel tells the state of a new bridge a second late.
func (s *scene) state() map[string]string {
	s.Helper()
	state := map[string]string{}
	for _, look := range []string{
		"nft -s list ruleset", "ipset save", "ip -o link | sed 's/ state [A-Z]*//'", "ip rule", "ip -4 route show table all", "ls /run/floodwall",
		"for d in $(ls /sys/class/net); do tc qdisc show dev $d; done", "sysctl net.ipv4.tcp_syncookies net.ipv4.tcp_timestamps",
	} {
		out, _ := s.run("bash", "-c", look+" 2>/dev/null")
		out = strings.ReplaceAll(out, "\n\n", "\n")
		out = emptyTable.ReplaceAllString(emptyChain.ReplaceAllString(out, ""), "")
		tables := strings.SplitAfter(out, "\n}\n")
		slices.Sort(tables) // nft lists them in the order in which they were made
		state[look] = strings.Join(tables, "")
	}
	return state
}

// What iptables-nft leaves after its last rule, and makes anew when it only lists rules: chains that decide nothing, and their tables.
var (
	emptyChain = regexp.MustCompile(`(?m)^\tchain [A-Z]+ \{\n\t\ttype [^\n]*policy accept;\n\t\}\n`)
	emptyTable = regexp.MustCompile(`(?m)^table ip6? [a-z]+ \{\n\}\n`)
)

// same compares the state with one of before.
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
