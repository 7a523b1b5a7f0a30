// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestNetfilter sends random packets through random policies in nftables and iptables. Each verdict must be equal to that of Eval and that of the XDP
// program. FLOODWALL_LONG=1 tests a hundred times as many policies.
func TestNetfilter(t *testing.T) {
	for _, target := range []plan.Target{plan.TargetNftables, plan.TargetIptables} {
		t.Run(string(target), func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			_, seed := subject.Seeded(t)
			policies := testutil.Scaled(9, 3000)
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

// differential tests a series of policies on one target, and counts the results.
type differential struct {
	target   plan.Target
	judge    *testutil.Judge
	compared int
	dropped  int            // number of compared frames that were dropped
	skipped  map[string]int // number of frames that the target cannot decide, by the documented reason
	removed  int            // number of rules that the compiler rejects for this target
	late     int            // policies with rules at filter
	refused  int            // number of policies that the compiler rejects for XDP; they are compared only with Eval
}

const packetsPerPolicy = 2000

// policy tests one random policy with random packets.
func (d *differential) policy(t *testing.T, r *rand.Rand) {
	w := &subject.Writer{Rand: r, Stateful: r.IntN(3) == 0, Payload: r.IntN(8) == 0}
	text, dynamic := w.Policy(t, 1+r.IntN(10))
	s := subject.Lower(t, text).Unlimited()
	for _, name := range dynamic {
		s.Insert(t, name, w.Members())
	}
	if s.HasLocal() {
		defer d.own(t, s, w)()
	}
	hints := subject.RuleHints(s, w)
	s = s.Optimized()
	if r.IntN(2) == 0 {
		s.Program = subject.RandomlyPlaced(r, s.Program, d.target)
	}
	pl := d.plan(t, s)
	d.onlyDone(t, s, pl)
	if pl.Uses(plan.StageFilter) {
		d.late++
	}
	rules := d.load(t, s, pl)
	defer rules.remove(t)
	frames := make([]subject.Probe, packetsPerPolicy)
	raw := make([][]byte, len(frames))
	for i := range frames {
		if h := hints[r.IntN(len(hints))]; r.IntN(3) > 0 {
			frames[i].Frame = packet.RandomSpec(r, h).Frame()
		} else {
			frames[i].Frame = packet.Random(r, h)
		}
		raw[i] = frames[i].Frame
	}
	fates, err := d.judge.Fates(raw)
	if err != nil {
		t.Fatal(err)
	}
	var same []subject.Probe
	for i, f := range fates {
		if d.compare(t, s, pl, rules, &frames[i], f) {
			same = append(same, frames[i])
		}
	}
	if !asksState(s.Program) {
		d.xdp(t, s.Early(), same)
	}
}

// own adds the addresses that the policy mentions to the device. They become the program's set of the host's own addresses.
func (d *differential) own(t *testing.T, s *subject.Subject, w *subject.Writer) (remove func()) {
	dev, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	var added []*netlink.Addr
	for range 3 {
		a := w.Prefix().Addr()
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
			s.Insert(t, "local", netip.PrefixFrom(a, a.BitLen()).String())
		}
	}
	for _, a := range added {
		testutil.WaitLocal(t, a.IP)
	}
	return func() {
		for _, a := range added {
			netlink.AddrDel(dev, a)
		}
	}
}

// plan hoists the program. It omits rules that the compiler cannot place on this target.
func (d *differential) plan(t *testing.T, s *subject.Subject) *plan.Plan {
	for {
		pl, err := plan.Hoist(s.Program, d.target)
		if err == nil {
			_, err = d.compile(s, pl)
		}
		var refused *plan.StageError
		if err == nil {
			return pl
		}
		if !errors.As(err, &refused) || refused.Hint() == "" {
			t.Fatalf("%v\npolicy:\n%s", err, s.Policy)
		}
		before := len(s.Program.Rules)
		program := *s.Program
		program.Rules = slices.DeleteFunc(slices.Clone(program.Rules), func(r ir.Rule) bool { return r.Name == refused.Rule })
		if s.Program = &program; len(program.Rules) == before {
			t.Fatalf("%v: there is no such rule\npolicy:\n%s", err, s.Policy)
		}
		d.removed++
	}
}

// onlyDone disables the checks that the target does not make at all.
func (d *differential) onlyDone(t *testing.T, s *subject.Subject, pl *plan.Plan) {
	r, err := d.compile(s, pl)
	if err != nil {
		t.Fatal(err)
	}
	s.Program.Checks &= r.checks | r.partly
}

// compare compares the kernel's verdict on a frame with that of Eval. It returns false for a frame that the target, as documented, cannot decide.
func (d *differential) compare(t *testing.T, s *subject.Subject, pl *plan.Plan, r *rules, f *subject.Probe, fate testutil.Fate) bool {
	t.Helper()
	if i := slices.Index([]string{"new", "established", "related", "invalid", "untracked"}, fate.State); i >= 0 {
		f.State = uint32(i)
	}
	if why := d.exempt(s, pl, r, *f, fate); why != "" {
		d.skipped[why]++
		return false
	}
	d.compared++
	verdict, reason := s.Eval(*f)
	if dropped := fate.Dropped != ""; dropped != (verdict != ir.Pass) {
		t.Logf("that frame alone, once more: %s", d.moved(f.Frame))
		t.Errorf("%x state %s\n%v dropped at %q, but Eval says %s %s\npacket %+v\nmembers %v\nstages %v default %v\nrules:\n%s\npolicy:\n%s", f.Frame, fate.State,
			fate.Seen, fate.Dropped, verdict, s.Program.ReasonName(reason), f.Packet(), s.Members, pl.Rules, pl.Default, subject.Shortened(r.show), subject.Shortened(s.Policy))
	}
	if verdict != ir.Pass {
		d.dropped++
	}
	return true
}

// moved sends a frame again. It returns the fate of the frame and the counters that the frame changes. The fate may differ from the first time, if
// earlier fragments or addresses have an influence on it.
func (d *differential) moved(frame []byte) string {
	show := []string{"sh", "-c", "nft list counters table inet floodwall | tr -d '\\n' | sed 's/counter/\\n&/g'"}
	if d.target == plan.TargetIptables {
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

// xdp compares the verdicts of the XDP program on the same frames. For frames that a later stage decides, the XDP program must pass them.
func (d *differential) xdp(t *testing.T, s *subject.Subject, frames []subject.Probe) {
	t.Helper()
	only := *s
	pl, err := plan.Hoist(s.Program, plan.TargetXDP)
	var refused *plan.StageError
	if errors.As(err, &refused) && refused.Hint() != "" {
		d.refused++
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if program, numbers := pl.Only(); len(program.Rules) == len(s.Program.Rules) && !slices.Contains(numbers, plan.Waits) {
		only.Program = program
		x, err := xdpgen.Generate(program, xdpgen.Options{QuestionKey: subject.QuestionKey})
		if err != nil {
			t.Fatal(err)
		}
		only.Compare(t, only.Load(t, x), "xdp", frames)
	}
}

// report logs how many frames were compared, and fails if they were too few for a meaningful result.
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
	t.Logf("%s: %d policies, %d with rules at filter, %d packets compared, %d of them dropped; %d rules left out; %d policies refused for xdp; exempt:%s",
		d.target, policies, d.late, d.compared, d.dropped, d.removed, d.refused, b.String())
	if d.late < policies/4 {
		t.Errorf("only %d policies have rules at filter", d.late)
	}
	if d.refused > policies/20 {
		t.Errorf("%d of %d policies are refused for xdp", d.refused, policies)
	}
	if d.compared < policies*packetsPerPolicy*2/5 || d.dropped < d.compared/20 {
		t.Errorf("only %d of %d packets were compared, %d dropped", d.compared, policies*packetsPerPolicy, d.dropped)
	}
}
