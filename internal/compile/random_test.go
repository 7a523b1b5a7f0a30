// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestRandom decides random packets by random policies in several ways, which must agree: by the policy key by key, by Eval of the program that Lower
// makes, by Eval of the optimized program, and by the loaded program in every form. FLOODWALL_LONG=1 tests 10 million pairs of a policy and a packet.
// To repeat a failure, use the printed seed, and -run with the number of the policy.
func TestRandom(t *testing.T) {
	_, seed := subject.Seeded(t)
	policies, packets := testutil.Scaled(7, 500), testutil.Scaled(2500, 20_000)
	t.Cleanup(func() {
		entry, general := subject.Paths.Entry.Load(), subject.Paths.General.Load()
		t.Logf("the entry decided %d frames, which general() decided too; %d were left to general()", entry, general)
		if least := (entry + general) / 20; entry < least || general < least {
			t.Errorf("want a twentieth at least of each: what is not asked is not tested")
		}
	})
	for i := range policies {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			rules := 1 + r.IntN(10)
			switch {
			case i%24 == 5:
				rules = 2000
			case i%6 == 2:
				rules = 100 + r.IntN(200)
			}
			randomPairs(t, r, rules, packets)
		})
	}
}

// randomPairs tests one random policy with random packets. It loads either the optimized program or the program before that.
func randomPairs(t *testing.T, r *rand.Rand, rules, packets int) {
	text, dynamic, w := subject.RandomPolicy(t, r, rules)
	s := subject.Lower(t, text)
	for _, name := range dynamic {
		s.Insert(t, name, w.Members())
	}
	if s.HasLocal() {
		s.Insert(t, "local", w.Members())
	}
	if rules%2 == 0 {
		s.Program.SampleTraffic = 10 // does not change verdicts
	}
	hints := subject.RuleHints(s, w)
	optimized := s.Optimized()
	frames := make([]subject.Probe, packets)
	structural := structuralChecks(s)
	for i := range frames {
		h := hints[len(hints)-1]
		if r.IntN(3) > 0 {
			h = hints[r.IntN(len(hints))]
		}
		frames[i].Frame = packet.Random(r, h)
		frames[i].Name = "random " + hex.EncodeToString(frames[i].Frame[:14])
		sameMeaning(t, s, optimized, frames[i])
		meansPolicy(t, s, structural, frames[i])
	}
	loaded := s
	if r.IntN(2) == 0 {
		loaded = optimized
	}
	forms := loaded.Forms(t)
	testutil.RequireRoot(t)
	for _, x := range forms {
		loaded.CompareHooks(t, loaded.Load(t, x), string(x.Form), frames)
	}
}

// TestLowering compares verdicts on random packets for many policies. Most policies have few rules, so that services and the default also decide
// packets. The test loads no program, so each policy takes only milliseconds.
func TestLowering(t *testing.T) {
	_, seed := subject.Seeded(t)
	for i := range testutil.Scaled(300, 20_000) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		text, dynamic, w := subject.RandomPolicy(t, r, r.IntN(5))
		s := subject.Lower(t, text)
		for _, name := range dynamic {
			s.Insert(t, name, w.Members())
		}
		if s.HasLocal() {
			s.Insert(t, "local", w.Members())
		}
		hints, structural := subject.RuleHints(s, w), structuralChecks(s)
		for range 300 {
			f := subject.Probe{Frame: packet.Random(r, hints[r.IntN(len(hints))])}
			meansPolicy(t, s, structural, f)
		}
	}
}

// structuralChecks returns the structural checks of a subject's program.
func structuralChecks(s *subject.Subject) (checks packet.CheckSet) {
	for _, structural := range s.Program.Structural() {
		checks = checks.With(structural.Check)
	}
	return checks
}

// meansPolicy compares Eval's verdict on a frame with the verdict that the policy itself gives, computed without Lower. The structural checks apply
// to every policy.
func meansPolicy(t *testing.T, s *subject.Subject, structural packet.CheckSet, f subject.Probe) {
	t.Helper()
	pkt := f.Packet()
	m := meaning{policy: s.Parsed, pkt: &pkt, rest: structural, members: map[string][]netip.Prefix{}}
	for i, prefixes := range s.Members {
		m.members[s.Program.Sets[i].Name] = prefixes
	}
	want, wantReason := m.decide()
	verdict, reason := s.Eval(f)
	if got := s.Program.ReasonName(reason); verdict.String() != want.String() || got != wantReason {
		t.Fatalf("%x state %d\nEval says %s %s\nthe policy says %s %s\nmembers %v\npolicy:\n%s", f.Frame, f.State,
			verdict, got, want, wantReason, s.Members, subject.Shortened(s.Policy))
	}
}

// sameMeaning compares the verdicts of two programs on a frame. If the policy names the reasons, it also compares the reasons.
func sameMeaning(t *testing.T, a, b *subject.Subject, f subject.Probe) {
	t.Helper()
	verdictA, reasonA := a.Eval(f)
	verdictB, reasonB := b.Eval(f)
	nameA, nameB := a.Program.ReasonName(reasonA), b.Program.ReasonName(reasonB)
	if verdictA != verdictB || nameA != nameB && !(unnamed(a, nameA) && unnamed(b, nameB)) {
		t.Fatalf("%x state %d\nbefore the passes %s %s\n after the passes %s %s\nmembers %v\npolicy:\n%s", f.Frame, f.State,
			verdictA, nameA, verdictB, nameB, a.Members, subject.Shortened(a.Policy))
	}
}

// unnamed reports whether a reason is a rule with a generated name.
func unnamed(s *subject.Subject, reason string) bool {
	for _, r := range s.Program.Rules {
		if r.Name == reason {
			return r.Unnamed
		}
	}
	return false
}
