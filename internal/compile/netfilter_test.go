package compile_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/internal/testutil"
)

// TestNetfilter has random packets against random policies in the kernel's own nftables and iptables: each verdict must
// be that of Eval and of the XDP program. FLOODWALL_LONG=1 makes it ten times as many policies.
func TestNetfilter(t *testing.T) {
	for _, target := range []compile.Target{compile.TargetNftables, compile.TargetIptables} {
		t.Run(string(target), func(t *testing.T) {
			t.Parallel()
			if !testutil.Inside(t) {
				return
			}
			_, seed := seeded(t)
			policies := 300
			if os.Getenv("FLOODWALL_LONG") != "" {
				policies *= 10
			}
			d := &differential{target: target, judge: testutil.NewJudge(t, "eth0", "eth1", true), skipped: map[string]int{}}
			for i := range policies {
				if d.policy(t, rand.New(rand.NewPCG(seed, uint64(i)))); t.Failed() {
					t.Fatalf("policy %d of seed %d", i, seed)
				}
			}
			d.report(t, policies)
		})
	}
}

// differential is a series of policies on one target.
type differential struct {
	target   compile.Target
	judge    *testutil.Judge
	compared int
	dropped  int            // of those compared
	skipped  map[string]int // frames that the target cannot decide, by the documented reason
	removed  int            // rules that the compiler refuses for this target
	refused  int            // policies that it refuses for XDP, as it says, and that are compared with Eval only
}

const packetsPerPolicy = 2000

// policy is one policy and its packets.
func (d *differential) policy(t *testing.T, r *rand.Rand) {
	w := &writer{Rand: r, stateful: r.IntN(3) == 0, payload: r.IntN(8) == 0}
	text, dynamic := w.policy(t, 1+r.IntN(10))
	s := lower(t, text)
	for _, name := range dynamic {
		s.insert(t, name, w.members())
	}
	if s.hasLocal() {
		defer d.own(t, s, w)()
	}
	hints := ruleHints(s, w)
	s = s.optimized()
	pl := d.plan(t, s)
	d.onlyDone(t, s, pl)
	rules := d.load(t, s, pl)
	defer rules.remove(t)
	frames := make([]probe, packetsPerPolicy)
	octets := make([][]byte, len(frames))
	for i := range frames {
		if h := hints[r.IntN(len(hints))]; r.IntN(3) > 0 {
			frames[i].frame = packet.RandomSpec(r, h).Frame()
		} else {
			frames[i].frame = packet.Random(r, h)
		}
		octets[i] = frames[i].frame
	}
	fates, err := d.judge.Fates(octets)
	if err != nil {
		t.Fatal(err)
	}
	var same []probe
	for i, f := range fates {
		if d.compare(t, s, pl, rules, &frames[i], f) {
			same = append(same, frames[i])
		}
	}
	if !asksState(s.program) {
		d.xdp(t, s, same)
	}
}

// own gives the device addresses that the policy has to do with, which are then the program's set of local addresses.
func (d *differential) own(t *testing.T, s *subject, w *writer) (remove func()) {
	dev, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	var added []*netlink.Addr
	for range 3 {
		a := w.prefix().Addr()
		if !a.IsGlobalUnicast() || strings.HasPrefix(a.String(), "0.") || a.Is4() && a.As4()[0] >= 224 {
			continue
		}
		addr, err := netlink.ParseAddr(netip.PrefixFrom(a, a.BitLen()).String())
		if err != nil {
			t.Fatal(err)
		}
		addr.Flags = 2 // IFA_F_NODAD of include/uapi/linux/if_addr.h
		if netlink.AddrAdd(dev, addr) == nil {
			added = append(added, addr)
			s.insert(t, "local", netip.PrefixFrom(a, a.BitLen()).String())
		}
	}
	for _, a := range added {
		waitLocal(t, a.IP)
	}
	return func() {
		for _, a := range added {
			netlink.AddrDel(dev, a)
		}
	}
}

// waitLocal waits for the route that makes an address the host's own: that of an IPv6 address comes some time after it.
func waitLocal(t *testing.T, a net.IP) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		routes, err := netlink.RouteGet(a)
		if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
			return
		}
	}
	t.Fatalf("%s does not become an address of the host", a)
}

// plan hoists, without the rules that the compiler says it cannot place on this target.
func (d *differential) plan(t *testing.T, s *subject) *compile.Plan {
	for {
		pl, err := compile.Hoist(s.program, d.target)
		if err == nil {
			_, err = d.compile(s, pl)
		}
		var refused *compile.PlaceError
		if err == nil {
			return pl
		}
		if !errors.As(err, &refused) || refused.Hint() == "" {
			t.Fatalf("%v\npolicy:\n%s", err, s.policy)
		}
		before := len(s.program.Rules)
		program := *s.program
		program.Rules = slices.DeleteFunc(slices.Clone(program.Rules), func(r ir.Rule) bool { return r.Name == refused.Rule })
		if s.program = &program; len(program.Rules) == before {
			t.Fatalf("%v: there is no such rule\npolicy:\n%s", err, s.policy)
		}
		d.removed++
	}
}

// onlyDone switches the checks off that the target does not do at all.
func (d *differential) onlyDone(t *testing.T, s *subject, pl *compile.Plan) {
	r, err := d.compile(s, pl)
	if err != nil {
		t.Fatal(err)
	}
	s.program.Checks &= r.checks | r.partly
}

// rules are what a target has in the kernel.
type rules struct {
	loads  []load // in their order
	undo   []load
	checks packet.CheckSet // that it does
	partly packet.CheckSet // that it does, but not for all packets
	show   string
}

// load is the input of a tool.
type load struct {
	tool  []string
	input string
}

func (l load) run(t *testing.T, policy string) {
	t.Helper()
	cmd := exec.Command(l.tool[0], l.tool[1:]...)
	cmd.Stdin = strings.NewReader(l.input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s\n%s\npolicy:\n%s", l.tool, err, out, l.input, policy)
	}
}

func (r *rules) remove(t *testing.T) {
	t.Helper()
	for _, l := range r.undo {
		l.run(t, "")
	}
}

// compile makes the inputs of the tools.
func (d *differential) compile(s *subject, pl *compile.Plan) (*rules, error) {
	if d.target == compile.TargetNftables {
		n, err := compile.ToNftables(pl, compile.NftOptions{Devices: []string{"eth0"}})
		if err != nil {
			return nil, err
		}
		script := n.Script + nftMembers(s, n)
		return &rules{
			loads:  []load{{[]string{"nft", "-f", "-"}, script}},
			undo:   []load{{[]string{"nft", "delete", "table", "inet", n.Table}, ""}},
			checks: without(s.program.Checks, n.Left), partly: setOf(n.Checks), show: script,
		}, nil
	}
	x, err := compile.ToIptables(pl, compile.IptOptions{Devices: []string{"eth0"}})
	if err != nil {
		return nil, err
	}
	out := &rules{checks: without(s.program.Checks, x.Left), partly: setOf(x.Checks), show: x.Script()}
	out.loads = append(out.loads, load{[]string{"ipset", "restore"}, x.IPSet + ipsetMembers(s, x)})
	for tool, text := range map[string]string{"iptables-restore": x.V4, "ip6tables-restore": x.V6} {
		out.loads = append(out.loads, load{[]string{tool, "--noflush"}, text})
		out.loads = append(out.loads, load{[]string{tool, "--noflush"}, hookLines(x.Hooks)})
		out.undo = append(out.undo, load{[]string{tool}, "*raw\nCOMMIT\n*filter\nCOMMIT\n"})
	}
	out.undo = append(out.undo, load{[]string{"ipset", "destroy"}, ""})
	return out, nil
}

// hookLines is the input that has the built-in chains jump to those of the policy.
func hookLines(hooks []compile.IptHook) string {
	var b strings.Builder
	for _, table := range []string{"raw", "filter"} {
		fmt.Fprintf(&b, "*%s\n", table)
		for _, h := range hooks {
			if h.Table == table {
				fmt.Fprintf(&b, "-A %s %s\n", h.Chain, h)
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

func without(checks packet.CheckSet, left []compile.Left) packet.CheckSet {
	for _, l := range left {
		checks = checks.Without(l.Check)
	}
	return checks
}

func setOf(done map[packet.Check]string) (set packet.CheckSet) {
	for c := range done {
		set = set.With(c)
	}
	return set
}

// nftMembers puts the members of the dynamic sets in.
func nftMembers(s *subject, n *compile.Nft) string {
	var b strings.Builder
	for set, prefixes := range s.members {
		names, ok := n.Sets[set]
		if !ok {
			continue
		}
		for _, p := range disjoint(prefixes) {
			name := names.Nets6
			switch {
			case p.Addr().Is4() && p.IsSingleIP():
				name = names.V4
			case p.IsSingleIP():
				name = names.V6
			case p.Addr().Is4():
				name = names.Nets4
			}
			text := p.String()
			if p.IsSingleIP() {
				text = p.Addr().String()
			}
			fmt.Fprintf(&b, "add element inet %s %s { %s }\n", n.Table, name, text)
		}
	}
	return b.String()
}

// disjoint leaves out prefixes that lie in others.
func disjoint(prefixes []netip.Prefix) (out []netip.Prefix) {
	for i, p := range prefixes {
		if !slices.ContainsFunc(prefixes, func(q netip.Prefix) bool { return q.Bits() < p.Bits() && q.Contains(p.Addr()) }) &&
			!slices.Contains(prefixes[:i], p) {
			out = append(out, p)
		}
	}
	return out
}

func ipsetMembers(s *subject, x *compile.Iptables) string {
	var b strings.Builder
	for set, prefixes := range s.members {
		names, ok := x.Sets[set]
		if !ok {
			continue
		}
		for _, p := range prefixes {
			name, entries := names.Entries(p)
			for _, e := range entries {
				if name != "" {
					fmt.Fprintf(&b, "add -exist %s %s\n", name, e)
				}
			}
		}
	}
	return b.String()
}

func (d *differential) load(t *testing.T, s *subject, pl *compile.Plan) *rules {
	t.Helper()
	r, err := d.compile(s, pl)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range r.loads {
		l.run(t, s.policy)
	}
	return r
}

// compare holds the kernel's verdict on a frame against Eval's. It reports false when the target cannot decide it, or
// is not asked.
func (d *differential) compare(t *testing.T, s *subject, pl *compile.Plan, r *rules, f *probe, fate testutil.Fate) bool {
	t.Helper()
	if i := slices.Index([]string{"new", "established", "related", "invalid", "untracked"}, fate.State); i >= 0 {
		f.state = uint32(i)
	}
	if why := d.exempt(s, r, *f, fate); why != "" {
		d.skipped[why]++
		return false
	}
	d.compared++
	verdict, reason := s.eval(*f)
	if dropped := fate.Dropped != ""; dropped != (verdict != ir.Pass) {
		t.Logf("that frame alone, once more: %s", d.moved(f.frame))
		t.Errorf("%x state %s\n%v dropped at %q, but Eval says %s %s\npacket %+v\nmembers %v\nstages %v default %v\nrules:\n%s\npolicy:\n%s", f.frame, fate.State,
			fate.Seen, fate.Dropped, verdict, s.program.ReasonName(reason), f.packet(), s.members, pl.Rules, pl.Default, shortened(r.show), shortened(s.policy))
	}
	if verdict != ir.Pass {
		d.dropped++
	}
	return true
}

// moved sends a frame once more, and says what becomes of it, which need not be the same where fragments or addresses
// of before were in it, and lists the counters of the target that this changes.
func (d *differential) moved(frame []byte) string {
	show := []string{"sh", "-c", "nft list counters table inet floodwall | tr -d '\\n' | sed 's/counter/\\n&/g'"}
	if d.target == compile.TargetIptables {
		show = []string{"sh", "-c", "iptables-save -c; ip6tables-save -c"}
	}
	before, _ := exec.Command(show[0], show[1:]...).Output()
	fates, err := d.judge.Fates([][]byte{frame})
	after, _ := exec.Command(show[0], show[1:]...).Output()
	was := strings.Split(string(before), "\n")
	var b strings.Builder
	fmt.Fprintf(&b, "%+v %v; counters that move:\n", fates, err)
	for line := range strings.Lines(string(after)) {
		if !slices.Contains(was, strings.TrimSuffix(line, "\n")) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// exempt is the documented reason why a target need not decide a frame as XDP does, or "".
func (d *differential) exempt(s *subject, r *rules, f probe, fate testutil.Fate) string {
	pkt := f.packet()
	switch {
	case pkt.Kind == packet.NotIP:
		return "not IP"
	case pkt.Kind == packet.Malformed:
		return "the kernel drops what has no readable IP header"
	case pkt.Failed&s.program.Checks&^r.checks != 0:
		return "fails a check that the compiler says the target does not do"
	case pkt.Failed.Has(packet.Truncated) || pkt.Failed.Has(packet.IPHeader) || pkt.Failed.Has(packet.IPChecksum):
		return "the kernel's IP drops it before"
	case pkt.Failed.Has(packet.ExtHeaders) || pkt.Failed.Has(packet.ExtOrder):
		return "IPv6 extension headers that the kernel reads otherwise"
	case (asksState(s.program) || d.target == compile.TargetIptables) && (pkt.Value[packet.Fragment] != packet.FragmentNone || pkt.Failed.Has(packet.AtomicFragment)):
		return "a fragment, which conntrack puts together with others"
	case headless(&pkt):
		return "an L4 header that is cut short, where netfilter reads what follows the packet"
	case d.target == compile.TargetIptables && pkt.Value[packet.Family] == packet.FamilyIPv6 && pkt.Value[packet.Length] < 48:
		return "IPv6 with less than 8 octets, where ip6tables finds no header to look for"
	case d.target == compile.TargetIptables && pkt.Value[packet.Family] == packet.FamilyIPv6 && pkt.Value[packet.Proto] == 50 && len(pkt.L4) < 2:
		return "IPv6 with ESP of less than 2 octets, which ip6tables takes for an extension header that is cut short"
	case s.hasLocal() && (pkt.Src.IsLoopback() || pkt.Dst.IsLoopback()):
		return "a loopback address from outside, which the kernel drops"
	case pkt.Failed.Has(packet.TCPHeader), pkt.Failed.Has(packet.TinyFragment):
		return "a TCP header that is not whole, in which netfilter finds no options"
	case pkt.Value[packet.Proto] == 51 && pkt.Value[packet.Family] == packet.FamilyIPv6:
		return "IPv6 with an authentication header, behind which nft looks for extension headers"
	case d.target == compile.TargetIptables && d.unseen(s, &pkt):
		return "a payload that iptables does not look into"
	case d.target == compile.TargetNftables && len(fate.Seen) > 0 && fate.Seen[0] != "ingress":
		return "behind two VLAN tags, where the ingress hook sees no IP"
	case fate.Dropped == "" && !d.arrived(s, fate):
		return "the kernel's IP drops it before the last stage"
	}
	return ""
}

// unseen reports whether a policy asks for payload, and the packet's is where Iptables.Notes say that it is not seen.
func (d *differential) unseen(s *subject, pkt *packet.Packet) bool {
	text, place := false, false
	for _, r := range s.program.Rules {
		for _, m := range r.Payload {
			text, place = text || len(m.Any) > 0, place || len(m.At) > 0
		}
	}
	v4 := pkt.Value[packet.Family] == packet.FamilyIPv4
	options := int(pkt.Value[packet.Length])-len(pkt.L4) != map[bool]int{true: 20, false: 40}[v4]
	switch pkt.Value[packet.Proto] {
	case 1, 17, 58:
		return options && (text || place && !v4)
	}
	return place && (options && !v4 || len(pkt.Payload) < 4)
}

// headless reports whether a packet should have an L4 header, and has none that can be read.
func headless(pkt *packet.Packet) bool {
	none := pkt.Value[packet.DPort] == packet.PortNone && pkt.Value[packet.ICMP] == packet.ICMPNone
	v4 := pkt.Value[packet.Family] == packet.FamilyIPv4
	switch proto := pkt.Value[packet.Proto]; {
	case proto == 6, proto == 17, proto == 1 && v4, proto == 58 && !v4:
		return none && pkt.Value[packet.Fragment] != packet.FragmentLater
	}
	return false
}

// arrived reports whether a frame came to the last hook at which a rule could be.
func (d *differential) arrived(s *subject, fate testutil.Fate) bool {
	last := "raw" // of those that every packet comes to
	if slices.Contains(fate.Seen, last) && !asksState(s.program) && !asksReject(s.program) {
		return true
	}
	return slices.Contains(fate.Seen, "input") || slices.Contains(fate.Seen, "forward")
}

func asksState(p *ir.Program) bool {
	return slices.ContainsFunc(p.Rules, func(r ir.Rule) bool {
		return slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == packet.State })
	})
}

func asksReject(p *ir.Program) bool {
	return slices.ContainsFunc(p.Rules, func(r ir.Rule) bool { return r.Verdict == ir.Reject })
}

// xdp has the XDP program decide the same frames. What it leaves to a later stage it passes.
func (d *differential) xdp(t *testing.T, s *subject, frames []probe) {
	t.Helper()
	only := *s
	pl, err := compile.Hoist(s.program, compile.TargetXDP)
	var refused *compile.PlaceError
	if errors.As(err, &refused) && refused.Hint() != "" {
		d.refused++
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if program, _ := pl.Only(); len(program.Rules) == len(s.program.Rules) {
		only.program = program
		x, err := compile.ToXDP(program, compile.XDPOptions{QuestionKey: questionKey})
		if err != nil {
			t.Fatal(err)
		}
		only.compare(t, only.load(t, x), "xdp", frames)
	}
}

// report says how much was compared, and fails when it was too little to mean anything.
func (d *differential) report(t *testing.T, policies int) {
	var b bytes.Buffer
	for _, why := range slices.Sorted(func(yield func(string) bool) {
		for why := range d.skipped {
			if !yield(why) {
				return
			}
		}
	}) {
		fmt.Fprintf(&b, "\n%8d %s", d.skipped[why], why)
	}
	t.Logf("%s: %d policies, %d packets compared, %d of them dropped; %d rules left out; %d policies refused for xdp; exempt:%s",
		d.target, policies, d.compared, d.dropped, d.removed, d.refused, b.String())
	if d.refused > policies/20 {
		t.Errorf("%d of %d policies are refused for xdp", d.refused, policies)
	}
	if d.compared < policies*packetsPerPolicy*2/5 || d.dropped < d.compared/20 {
		t.Errorf("only %d of %d packets were compared, %d dropped", d.compared, policies*packetsPerPolicy, d.dropped)
	}
}
