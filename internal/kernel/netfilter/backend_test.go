// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// generations are the operations that both targets support. Each generation has a number. Odd generations drop packets to port 3, and even ones
// packets to port 4. All generations drop packets to port 1, and pass packets to port 2. Odd and even generations drop packets to port 1 at different
// stages.
type generations interface {
	load(ctx context.Context, n, old int, trial time.Duration) error
	name(n int) string // "" for 0
	prefix() string
	beside(ctx context.Context, n, old int, trial time.Duration) error
	SetReturn(ctx context.Context, name, old string, trial time.Duration) error
	Renew(ctx context.Context, name string, left time.Duration) error
	SetAside(ctx context.Context, name, old string) error
	Confirm(ctx context.Context, name, old string) error
	Rollback(ctx context.Context, name, old string) error
	Trial(ctx context.Context, name string) (time.Duration, State, error)
	Counters(ctx context.Context, name string) (map[string]Count, error)
	Remove(ctx context.Context, name string) error
	Leftovers(ctx context.Context, prefix string, keep ...string) ([]string, error)
	Clean(ctx context.Context, prefix string, keep ...string) ([]string, error)
}

type nftGenerations struct{ *Nft }

func (g nftGenerations) prefix() string { return "floodwall-" }

func (g nftGenerations) name(n int) string { return numberedName(g.prefix(), n) }

func numberedName(prefix string, n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(prefix, n)
}

// stages returns the rules of generation n at the early and at the late stage.
func stages(n int, form string) (early, late string) {
	both := fmt.Sprintf(form, 1)
	own := fmt.Sprintf(form, 4-n%2)
	if n%2 == 1 {
		return both, own
	}
	return own, both
}

func (g nftGenerations) table(n int) Table {
	early, late := stages(n, `udp dport %d counter name "dropped" drop`)
	return Table{Name: g.name(n), Chains: []string{"ingress", "raw", "input", "forward"}, Script: fmt.Sprintf(`
# A policy.
table inet %s {
	counter dropped { comment "all; of them" }
	set bans4 { type ipv4_addr; flags interval,timeout; timeout 1h; }
	set bans6 { type ipv6_addr; flags interval,timeout; }
	set listed { type ipv4_addr; flags interval
		elements = { 203.0.113.0/25, 203.0.113.128/25,
			203.0.114.7 }
	}
	chain ingress {
		type filter hook ingress device "fw0" priority -500; policy accept;
		ip saddr @listed drop
		%s
	}
	chain raw {
		type filter hook prerouting priority raw; policy accept;
		ip saddr @bans4 drop comment "a { b; c"
		ip6 saddr @bans6 drop
		udp dport { 7, 8,
			9 } notrack
	}
	chain input {
		type filter hook input priority filter + 1; policy accept;
		iifname "fw0" jump more
	}
	chain more {
		%s
	}
	chain forward { type filter hook forward priority filter; policy drop; }
}
`, g.name(n), early, late)}
}

func (g nftGenerations) load(ctx context.Context, n, old int, trial time.Duration) error {
	return g.Load(ctx, g.table(n), g.name(old), trial)
}

func (g nftGenerations) beside(ctx context.Context, n, old int, trial time.Duration) error {
	t := g.table(n)
	t.Beside = true
	return g.Load(ctx, t, g.name(old), trial)
}

type iptablesGenerations struct{ *Iptables }

func (g iptablesGenerations) prefix() string { return "FLOODWALL-" }

func (g iptablesGenerations) name(n int) string { return numberedName(g.prefix(), n) }

func (g iptablesGenerations) rules(n int) Rules {
	name := g.name(n)
	early, late := stages(n, `-p udp -m udp --dport %d -m comment --comment dropped -j DROP`)
	script := fmt.Sprintf(`*raw
:%[1]s-raw - [0:0]
-A %[1]s-raw -m set --match-set %[2]s-bansV src -m comment --comment "a ban" -j DROP
-A %[1]s-raw %[3]s
COMMIT
*filter
:%[1]s-input - [0:0]
:%[1]s-more - [0:0]
-A %[1]s-input -j %[1]s-more
-A %[1]s-more %[4]s
COMMIT
`, name, strings.ToLower(name), early, late)
	return Rules{
		Name: name,
		IPSet: fmt.Sprintf("create %[1]s-bans4 hash:net family inet timeout 0 comment\n"+
			"create %[1]s-bans6 hash:net family inet6 timeout 0 comment\n"+
			"create %[1]s-listed hash:ip\nadd %[1]s-listed 203.0.113.7\nadd %[1]s-listed 203.0.113.8\n", strings.ToLower(name)),
		V4: strings.ReplaceAll(script, "bansV", "bans4"),
		V6: strings.ReplaceAll(script, "bansV", "bans6"),
		Hooks: []Hook{
			{Table: "raw", Chain: "PREROUTING", Target: name + "-raw", Device: "fw0"},
			{Table: "filter", Chain: "INPUT", Target: name + "-input", Device: "fw0"},
			{Table: "filter", Chain: "INPUT", Target: name + "-more", Device: "fw9"},
			{Table: "filter", Chain: "OUTPUT", Target: name + "-none", Device: "fw0", Output: true},
		},
	}
}

func (g iptablesGenerations) load(ctx context.Context, n, old int, trial time.Duration) error {
	return g.Load(ctx, g.rules(n), g.name(old), trial)
}

func (g iptablesGenerations) beside(ctx context.Context, n, old int, trial time.Duration) error {
	r := g.rules(n)
	r.Beside = true
	return g.Load(ctx, r, g.name(old), trial)
}

// backends are the targets under test. iptables-legacy uses the kernel's own tables.
var backends = []string{"nft", "iptables-nft", "iptables-legacy"}

// open opens a target with its tools. For iptables-legacy it adds a directory to the start of the path that has the tools under their usual names.
func open(t testing.TB, backend string) generations {
	t.Helper()
	if backend == "nft" {
		n, err := FindNft(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return nftGenerations{n}
	}
	setPath(t, pathOf(t, backend))
	x, err := FindIptables()
	if err != nil {
		t.Fatal(err)
	}
	return iptablesGenerations{x}
}

func setPath(t testing.TB, path string) {
	if s, ok := t.(interface{ Setenv(string, string) }); ok {
		s.Setenv("PATH", path)
	}
}

func pathOf(t testing.TB, backend string) string {
	dir := t.TempDir()
	kind := strings.TrimPrefix(backend, "iptables-")
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, tool := range []string{"save", "restore"} {
			at, err := exec.LookPath(name + "-" + kind + "-" + tool)
			if err == nil {
				err = os.Symlink(at, filepath.Join(dir, name+"-"+tool))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir + ":" + os.Getenv("PATH")
}

// each runs a test for each target, in a namespace with a veth pair from fw1 to fw0 and with rules of another program.
func each(t *testing.T, test func(*testing.T, *bench)) {
	t.Helper()
	on(t, backends, test)
}

// on runs a test for the given targets.
func on(t *testing.T, backends []string, test func(*testing.T, *bench)) {
	t.Helper()
	for _, tool := range []string{"nft", "iptables", "iptables-legacy-restore", "ipset", "ip"} {
		testutil.RequireTool(t, tool)
	}
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			wire(t)
			test(t, &bench{TB: t, generations: open(t, backend)})
		})
	}
}

// wire creates the veth pair, and rules of another program. One of these rules counts the packets that enter.
func wire(t testing.TB) {
	t.Helper()
	testutil.Veth(t, "fw0", "fw1", "10.0.0.1/24", "2001:db8::1/64")
	shell(t, "ip link set fw0 address 02:00:00:00:00:02")
	pipe(t, "nft -f -", `table inet watch {
	counter p0 { }
	counter p1 { }
	counter p2 { }
	counter p3 { }
	counter p4 { }
	set trial { type ipv4_addr; elements = { 192.0.2.1 } }
	chain in {
		type filter hook input priority 1000; policy accept;
		udp sport 6 counter name p0 accept
		udp dport 1 counter name p1
		udp dport 2 counter name p2
		udp dport 3 counter name p3
		udp dport 4 counter name p4
	}
}
table inet floodwall-x { }
table ip floodwall-9 { }
`)
	pipe(t, "ipset restore", "create floodwall hash:ip\nadd floodwall 192.0.2.1\n")
	for _, tool := range []string{"iptables", "ip6tables"} {
		for _, kind := range []string{"-nft", "-legacy"} {
			pipe(t, tool+kind+"-restore --noflush", "*raw\n:OTHER - [0:0]\n:FLOODWALLS - [0:0]\n-A PREROUTING -i fw7 -j OTHER\n"+
				"-A OTHER -p udp -m udp --dport 99 -j DROP\nCOMMIT\n*filter\n:OTHER - [0:0]\n-A INPUT -i fw7 -j OTHER\n"+
				"-A INPUT -i fw8 -j DROP\nCOMMIT\n")
		}
	}
}

func shell(t testing.TB, command string) string {
	t.Helper()
	return pipe(t, command, "")
}

func pipe(t testing.TB, command, input string) string {
	t.Helper()
	words := strings.Fields(command)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return string(out)
}

// bench is a target under test.
type bench struct {
	testing.TB
	generations
	busy bool // traffic to ports 1 and 2 is running
}

// ruleset returns the kernel's content of all tables, without counters.
func (b *bench) ruleset() []string {
	b.Helper()
	var all []string
	for _, command := range []string{
		"nft -s list ruleset", "iptables-legacy-save", "ip6tables-legacy-save", "ipset -sorted save",
	} {
		for line := range strings.Lines(shell(b, command)) {
			if line[0] == ':' {
				line, _, _ = strings.Cut(line, "[")
			}
			line, _, _ = strings.Cut(line, " initval") // random
			if line[0] != '#' {
				all = append(all, strings.TrimRight(line, "\n"))
			}
		}
	}
	return all
}

// passed returns the number of packets that have passed, by port. Index 0 counts the marker packets of sent.
func (b *bench) passed() (ports [5]uint64) {
	b.Helper()
	counts, err := (&Nft{tool: tool{name: "nft", path: "/usr/sbin/nft"}}).Counters(context.Background(), "watch")
	if err != nil {
		b.Fatal(err)
	}
	for i := range ports {
		ports[i] = counts[fmt.Sprint("p", i)].Packets
	}
	return ports
}

// forms are formats for packets to a port, one for each family.
var forms = []string{"udp 10.0.0.2:5 > 10.0.0.1:%d", "udp [2001:db8::2]:5 > [2001:db8::1]:%d"}

func (b *bench) send(port, n int) {
	b.Helper()
	for _, form := range forms {
		if err := testutil.Send("fw1", fmt.Sprintf(form, port), n); err != nil {
			b.Error(err)
		}
	}
}

// sent calls send, waits until the kernel has processed the packets, and returns the number of packets that have passed meanwhile, by port. It sends
// a marker packet last, on the same CPU and so in the same queue. Every generation passes the marker, because no test bans IPv6 addresses.
func (b *bench) sent(send func()) (passed [5]uint64) {
	b.Helper()
	before := b.passed()
	restore := testutil.OnOneCPU(b)
	send()
	b.must(testutil.Send("fw1", "udp [2001:db8::2]:6 > [2001:db8::1]:2", 1))
	restore()
	if !testutil.Eventually(arrival, func() bool { passed = b.passed(); return passed[0] > before[0] }) {
		b.Fatalf("packets that nothing drops do not come through within %v", arrival)
	}
	for i := range passed {
		passed[i] -= before[i]
	}
	return passed
}

// decides sends packets to find out which generations decide. It returns odd, even, both or none. While traffic runs, it may also return changing
// during a change.
func (b *bench) decides() string {
	b.Helper()
	const n = 20
	ports := []int{3, 4, 1, 2}
	if b.busy {
		ports = ports[:2]
	}
	passed := b.sent(func() {
		for _, port := range ports {
			b.send(port, n)
		}
	})
	for i := range passed {
		passed[i] /= uint64(len(forms))
	}
	who, ok := map[[2]uint64]string{{n, n}: "none", {0, n}: "odd", {n, 0}: "even", {0, 0}: "both"}[[2]uint64{passed[3], passed[4]}]
	one := uint64(0)
	if who == "none" {
		one = n
	}
	if b.busy && (!ok || who == "none") { // one port was tested before the change, the other after it; traffic detects whether no generation decides
		return "changing"
	}
	if !ok || !b.busy && (passed[1] != one || passed[2] != n) {
		return fmt.Sprint("passed by port: ", passed[1:])
	}
	return who
}

// arrival is the longest time that a packet may wait in its receiver's queue on a busy machine.
const arrival = time.Minute

// traffic sends packets until stop is called: packets that both generations drop, and packets that both pass. stop checks that no packet of the first
// kind has passed, and that no packet of the second kind was lost. In the short form the sender sometimes sleeps for a millisecond, because it would
// otherwise use a whole CPU.
func (b *bench) traffic() (stop func()) {
	const burst, enough = 8, 2000
	var descriptions []string
	for port := 1; port <= 2; port++ {
		for _, form := range forms {
			descriptions = append(descriptions, fmt.Sprintf(form, port))
		}
	}
	before := b.passed()
	done, sent := make(chan struct{}), make(chan uint64)
	b.busy = true
	go func() {
		n := uint64(0)
		err := testutil.SendFor("fw1", descriptions, func(rounds int) bool {
			n = 2 * uint64(rounds)
			if rounds%burst == 0 && !testutil.Long() {
				time.Sleep(time.Millisecond)
			}
			select {
			case <-done:
				return false
			default:
				return true
			}
		})
		if err != nil {
			b.Error(err)
		}
		sent <- n
	}()
	return func() {
		b.Helper()
		close(done)
		n := <-sent
		b.busy = false
		var after [5]uint64
		testutil.Eventually(arrival, func() bool { after = b.passed(); return after[2]-before[2] >= n })
		b.Logf("%d packets that both drop, %d that both pass", n, n)
		if wrong, right := after[1]-before[1], after[2]-before[2]; wrong != 0 || right != n || n < enough {
			b.Errorf("%d of %d packets passed that both drop, and %d that both pass", wrong, n, right)
		}
	}
}

func (b *bench) want(when, who string) {
	b.Helper()
	if got := b.decides(); got != who {
		b.Errorf("%s: %s decides, want %s", when, got, who)
	}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// states checks the states of generations: `1 settled, 2 absent`.
func (b *bench) states(when, want string) {
	b.Helper()
	if s := b.statesOf(want); s != want {
		b.Errorf("%s: %s, want %s", when, s, want)
	}
}

// statesOf returns the states of the generations in a list like that of states.
func (b *bench) statesOf(list string) string {
	b.Helper()
	var got []string
	for part := range strings.SplitSeq(list, ", ") {
		var n int
		fmt.Sscan(part, &n)
		_, state, err := b.Trial(b.Context(), b.name(n))
		b.must(err)
		got = append(got, fmt.Sprint(n, " ", state))
	}
	return strings.Join(got, ", ")
}
