package compile_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestRandom has random packets against random policies: the policy read key by key, Eval of the program that Lower makes
// of it and after the passes must agree, and so must what is loaded, in every form. FLOODWALL_LONG=1 makes it 10 million
// pairs of policy and packet. A failure is repeated with the seed that is printed, and -run for the number of the policy.
func TestRandom(t *testing.T) {
	_, seed := seeded(t)
	policies, packets := testutil.Scaled(7, 500), testutil.Scaled(2500, 20_000)
	t.Cleanup(func() {
		entry, general := paths.entry.Load(), paths.general.Load()
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

// randomPairs is one policy and its packets. The program that is loaded is the one after the passes or the one before.
func randomPairs(t *testing.T, r *rand.Rand, rules, packets int) {
	text, dynamic, w := randomPolicy(t, r, rules)
	s := lower(t, text)
	for _, name := range dynamic {
		s.insert(t, name, w.members())
	}
	if s.hasLocal() {
		s.insert(t, "local", w.members())
	}
	if rules%2 == 0 {
		s.program.SampleTraffic = 10 // changes no verdict
	}
	hints := ruleHints(s, w)
	optimized := s.optimized()
	frames := make([]probe, packets)
	structural := structuralChecks(s)
	for i := range frames {
		h := hints[len(hints)-1]
		if r.IntN(3) > 0 {
			h = hints[r.IntN(len(hints))]
		}
		frames[i].frame = packet.Random(r, h)
		frames[i].name = "random " + hex.EncodeToString(frames[i].frame[:14])
		sameMeaning(t, s, optimized, frames[i])
		meansPolicy(t, s, structural, frames[i])
	}
	loaded := s
	if r.IntN(2) == 0 {
		loaded = optimized
	}
	forms := loaded.forms(t)
	testutil.RequireRoot(t)
	for _, x := range forms {
		loaded.compare(t, loaded.load(t, x), string(x.Form), frames)
	}
}

// structuralChecks are those of a subject's program.
func structuralChecks(s *subject) (checks packet.CheckSet) {
	for _, structural := range s.program.Structural() {
		checks = checks.With(structural.Check)
	}
	return checks
}

// meansPolicy compares what Eval makes of a frame with what the policy says, read without Lower. Whatever the policy says, the
// structural checks hold.
func meansPolicy(t *testing.T, s *subject, structural packet.CheckSet, f probe) {
	t.Helper()
	pkt := f.packet()
	m := meaning{policy: s.parsed, pkt: &pkt, rest: structural, members: map[string][]netip.Prefix{}}
	for i, prefixes := range s.members {
		m.members[s.program.Sets[i].Name] = prefixes
	}
	want, wantReason := m.decide()
	verdict, reason := s.eval(f)
	if got := s.program.ReasonName(reason); verdict.String() != want.String() || got != wantReason {
		t.Fatalf("%x state %d\nEval says %s %s\nthe policy says %s %s\nmembers %v\npolicy:\n%s", f.frame, f.state,
			verdict, got, want, wantReason, s.members, shortened(s.policy))
	}
}

// sameMeaning compares what two programs make of a frame: the verdict, and the reason where the policy names it.
func sameMeaning(t *testing.T, a, b *subject, f probe) {
	t.Helper()
	verdictA, reasonA := a.eval(f)
	verdictB, reasonB := b.eval(f)
	nameA, nameB := a.program.ReasonName(reasonA), b.program.ReasonName(reasonB)
	if verdictA != verdictB || nameA != nameB && !(unnamed(a, nameA) && unnamed(b, nameB)) {
		t.Fatalf("%x state %d\nbefore the passes %s %s\n after the passes %s %s\nmembers %v\npolicy:\n%s", f.frame, f.state,
			verdictA, nameA, verdictB, nameB, a.members, shortened(a.policy))
	}
}

// unnamed reports whether a reason is a rule whose name was made up.
func unnamed(s *subject, reason string) bool {
	for _, r := range s.program.Rules {
		if r.Name == reason {
			return r.Unnamed
		}
	}
	return false
}
