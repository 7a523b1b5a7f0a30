// SPDX-License-Identifier: Apache-2.0

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

// TestIptablesWire sends packets over a wire and compares counters with Eval, for both implementations of iptables. It tests each check, rules of
// each form, and archived and random policies that are decided in raw. Each counter must agree with Eval, except for packets that iptables, as
// documented, cannot recognize. FLOODWALL_LONG=1 tests 500 policies.
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
		for _, form := range subject.KeyForms {
			w.form(t, form)
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

// check compares counters of a single check for the packets of checkTests.
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

// form compares counters of rules of one form, for packets at the limits of the rules' values.
func (w *countedWire) form(t *testing.T, form subject.KeyForm) {
	s := subject.Lower(t, "rules:"+form.Rules+"\n")
	x, err := subject.ToIptables(s.Program)
	if err != nil {
		t.Fatalf("%s: %v", form.Name, err)
	}
	var frames [][]byte
	for _, f := range subject.FramesOf(t, form.Packets) {
		frames = append(frames, f.Frame)
	}
	w.compare(t, s, x, frames)
}

// random compares counters of a random policy for random packets.
func (w *countedWire) random(t *testing.T, r *rand.Rand) {
	text, dynamic, write := subject.RandomPolicy(t, r, 1+r.IntN(8))
	s := subject.Lower(t, text).Optimized()
	for _, name := range dynamic {
		s.Insert(t, name, write.Members())
	}
	w.policy(t, r, s, write)
}

// archived compares counters of an archived policy for random packets.
func (w *countedWire) archived(t *testing.T, r *rand.Rand, file string) {
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := subject.Lower(t, subject.Section(a, "policy.yaml")).Optimized()
	subject.Settings(t, s, string(a.Comment))
	for i, set := range s.Program.Sets {
		if set.Dynamic != nil && set.Dynamic.Local {
			delete(s.Members, i) // this host has other addresses than the archived ones
		}
	}
	w.policy(t, r, s, &subject.Writer{})
}

// policy compares counters of a policy that is decided in raw, for packets that match its rules.
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

// countsMore reports whether a program also counts at rules that do not decide the packet, or whether the verdict depends on earlier packets.
// TestConditionCounts tests such programs.
func countsMore(p *ir.Program) bool {
	return p.Observed != 0 || slices.ContainsFunc(p.Rules, func(r ir.Rule) bool { return r.Observe || len(r.Over) > 0 })
}

// compare loads a policy, sends the frames that iptables can decide, and compares the counters with Eval.
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

// first sends the frames again, one by one, to find the first frame for which a counter differs from Eval.
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

// told reports whether a frame reaches iptables, and whether iptables can recognize all of its properties.
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
	case v6 && pkt.Dst.IsMulticast() && pkt.Dst.As16()[1]&0xf <= 1: // the scope is reserved or interface-local
		return false
	case subject.Authenticated(frame), v6 && badHopByHop(frame[14:]):
		return false
	}
	return pkt.Src != ones && pkt.Dst != ones && !upper127(pkt.Src) && !upper127(pkt.Dst)
}

// upper127 reports whether an address is the host's own although iptLocal does not contain it.
func upper127(a netip.Addr) bool { return netip.MustParsePrefix("127.128.0.0/9").Contains(a) }

// badHopByHop reports whether an IPv6 packet begins with hop-by-hop options other than the padding that packet.Parse writes.
func badHopByHop(p []byte) bool {
	return p[6] == 0 && (len(p) < 48 || !bytes.Equal(p[41:48], []byte{0, 1, 4, 0, 0, 0, 0}))
}

// countedWire is a wire that counts the compared frames.
type countedWire struct {
	*subject.IptWire
	counted int
}
