package iptables_test

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/floodwall/floodwall/internal/compile/iptables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestIptablesWire has checks, and policies of archives and random ones that are decided in raw, count packets from a
// wire, with both implementations of iptables: each reason must have what Eval says, less the packets of which the compiler says that
// iptables cannot tell. FLOODWALL_LONG=1 makes it 500 policies.
func TestIptablesWire(t *testing.T) {
	for _, tool := range []string{"ipset", "iptables-legacy-restore", "iptables-nft-restore"} {
		testutil.RequireTool(t, tool)
	}
	if !testutil.Inside(t) {
		return
	}
	w := &countedWire{IptWire: subject.NewIptWire(t)}
	_, seed := subject.Seeded(t)
	policies := testutil.Scaled(12, 500)
	for _, backend := range []string{"legacy", "nft"} {
		w.Backend = backend
		for check := range packet.NumChecks {
			w.check(t, check)
		}
		for i, file := range subject.Archives(t) {
			w.archived(t, rand.New(rand.NewPCG(seed, uint64(i))), file)
		}
		for i := range policies {
			w.random(t, rand.New(rand.NewPCG(seed, uint64(i))))
		}
		t.Logf("%s: %d packets", backend, w.counted)
		if w.counted < 1000 {
			t.Errorf("%s: only %d packets", backend, w.counted)
		}
		w.counted = 0
	}
}

// check has a check alone count the packets of checkTests.
func (w *countedWire) check(t *testing.T, check packet.Check) {
	s := subject.Lower(t, "checks: {profile: off, "+check.String()+": on}")
	x, err := subject.ToIptables(s.Program)
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for _, f := range subject.FramesOf(t, subject.CheckTests[check].Fail+subject.CheckTests[check].Pass) {
		frames = append(frames, f.Frame)
	}
	w.compare(t, s, x, frames)
}

// random has a random policy count random packets.
func (w *countedWire) random(t *testing.T, r *rand.Rand) {
	text, dynamic, write := subject.RandomPolicy(t, r, 1+r.IntN(8))
	s := subject.Lower(t, text).Optimized()
	for _, name := range dynamic {
		s.Insert(t, name, write.Members())
	}
	w.policy(t, r, s, write)
}

// archived has the policy of an archive count random packets.
func (w *countedWire) archived(t *testing.T, r *rand.Rand, file string) {
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := subject.Lower(t, subject.Section(a, "policy.yaml")).Optimized()
	subject.Settings(t, s, string(a.Comment))
	for i, set := range s.Program.Sets {
		if set.Dynamic != nil && set.Dynamic.Local {
			delete(s.Members, i) // this host has others
		}
	}
	w.policy(t, r, s, &subject.Writer{})
}

// policy has a policy that is decided in raw count packets that meet its rules.
func (w *countedWire) policy(t *testing.T, r *rand.Rand, s *subject.Subject, write *subject.Writer) {
	pl, err := plan.Hoist(s.Program, plan.TargetIptables)
	if err != nil || pl.Uses(plan.StageFilter) || countsMore(s.Program) {
		return
	}
	x, err := subject.ToIptables(s.Program)
	if err != nil {
		t.Fatalf("%v\n%s", err, s.Policy)
	}
	hints := subject.RuleHints(s, write)
	var frames [][]byte
	for range 300 {
		frames = append(frames, packet.Random(r, hints[r.IntN(len(hints))]))
	}
	w.compare(t, s, x, frames)
}

// countsMore reports whether more than the reason of a verdict is counted, or that depends on the packets before:
// TestConditionCounts is about that.
func countsMore(p *ir.Program) bool {
	return p.Observed != 0 || slices.ContainsFunc(p.Rules, func(r ir.Rule) bool { return r.Observe || len(r.Over) > 0 })
}

// compare loads a policy, sends those of the frames that iptables can tell, and holds what it has counted against Eval.
func (w *countedWire) compare(t *testing.T, s *subject.Subject, x *iptables.Ruleset, frames [][]byte) {
	t.Helper()
	w.Restore(t, s, x)
	sent := [][]byte{}
	want := map[string]int{}
	for _, f := range frames {
		if w.told(x, f) && w.Send(f) {
			sent = append(sent, f)
			want[s.Counter(f, x.Checks, x.Rules, x.Default)]++
		}
	}
	w.counted += len(sent)
	if got := w.Counts(t, s, len(sent)); !maps.Equal(got, want) {
		t.Errorf("%s: counters %v, want %v", w.Backend, got, want)
		w.first(t, s, x, sent, got)
	}
	w.Remove(t, s)
}

// first sends frames again, one by one, to find the first that is counted otherwise than Eval says.
func (w *countedWire) first(t *testing.T, s *subject.Subject, x *iptables.Ruleset, frames [][]byte, before map[string]int) {
	t.Helper()
	for n, f := range frames {
		w.Send(f)
		got := w.Counts(t, s, len(frames)+n+1)
		if want := s.Counter(f, x.Checks, x.Rules, x.Default); got[want] != before[want]+1 {
			t.Fatalf("%x\n%+v\nwant %s, counters %v\nbefore %v\n%s\n%s%s%s", f, packet.Decode(f), want, got, before, s.Program,
				x.IPSet, x.V4, x.V6)
		}
		before = got
	}
}

// told reports whether a frame gets to iptables, and has nothing of which iptables cannot tell.
func (w *countedWire) told(x *iptables.Ruleset, frame []byte) bool {
	pkt := packet.Decode(frame)
	kernel := packet.CheckSet(0).With(packet.Truncated).With(packet.IPHeader).With(packet.IPChecksum).With(packet.TinyFragment).
		With(packet.ExtHeaders).With(packet.ExtOrder).With(packet.TCPHeader)
	for _, l := range x.Left {
		kernel = kernel.With(l.Check)
	}
	v6 := pkt.Value[packet.Family] == packet.FamilyIPv6
	behind := pkt.Value[packet.Fragment] == packet.FragmentLater && subject.IsExtension(pkt.Value[packet.Proto])
	ones := netip.MustParseAddr("127.255.255.255")
	switch {
	case pkt.Kind != packet.IP, pkt.Failed&kernel != 0, pkt.Value[packet.VLAN] != packet.VLANNone:
		return false
	case v6 && (pkt.Src.IsMulticast() || pkt.Src.IsLoopback() || pkt.Dst.IsLoopback() || behind):
		return false
	case v6 && pkt.Dst.IsMulticast() && pkt.Dst.As16()[1]&0xf <= 1: // of no scope, or that of a host
		return false
	case subject.Authenticated(frame), v6 && badHopByHop(frame[14:]):
		return false
	}
	return pkt.Src != ones && pkt.Dst != ones && !upper127(pkt.Src) && !upper127(pkt.Dst)
}

// upper127 reports whether an address is the host's own though it is not in iptLocal.
func upper127(a netip.Addr) bool { return netip.MustParsePrefix("127.128.0.0/9").Contains(a) }

// badHopByHop reports whether an IPv6 packet begins with hop-by-hop options that are not padding, as in packet.Parse.
func badHopByHop(p []byte) bool {
	return p[6] == 0 && (len(p) < 48 || !bytes.Equal(p[41:48], []byte{0, 1, 4, 0, 0, 0, 0}))
}

// countedWire is a wire that counts what is compared.
type countedWire struct {
	*subject.IptWire
	counted int
}
