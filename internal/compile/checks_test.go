package compile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// expecting adds a verdict to each line.
func expecting(lines, verdict string) string {
	return strings.ReplaceAll(strings.TrimSpace(lines), "\n", verdict+"\n") + verdict + "\n"
}

// TestChecks has each check alone, with the packets of checkTests, and all others, which so show that it is what they
// say and nothing else.
func TestChecks(t *testing.T) {
	all := shapes(t)
	r, _ := seeded(t)
	all = append(all, randomFrames(r, packet.Hints{}, testutil.Scaled(600, 2000))...)
	for check := range packet.NumChecks {
		t.Run(check.String(), func(t *testing.T) {
			t.Parallel()
			test, ok := checkTests[check]
			if !ok {
				t.Fatal("no packets")
			}
			s := lower(t, "checks: {profile: off, "+check.String()+": on}")
			if check == packet.OwnSource {
				s.insert(t, "local", ownAddresses)
			}
			frames := s.cases(t, expecting(test.fail, " drop "+check.String()))
			frames = append(frames, casesNot(t, s, test.pass, check)...)
			s.agreeOnce(t, append(frames, all...))
		})
	}
}

// casesNot checks that packets do not fail a check, whether there is an IP packet in them or not.
func casesNot(t *testing.T, s *subject, lines string, check packet.Check) []probe {
	t.Helper()
	frames := framesOf(t, lines)
	for _, f := range frames {
		if verdict, reason := s.eval(f); verdict != 0 && !structural(s, reason, check) {
			t.Errorf("%s: %s %s, want that it does not fail %s", f.name, verdict, s.program.ReasonName(reason), check)
		}
	}
	return frames
}

// structural reports whether a reason is a check that another one rests on.
func structural(s *subject, r ir.Reason, than packet.Check) bool {
	return slices.ContainsFunc(s.program.Structural(), func(x ir.Structural) bool {
		return x.Check != than && x.Check.String() == s.program.ReasonName(r)
	})
}

// TestProfiles has all checks that packets can fail against the profiles, and all checks at once.
func TestProfiles(t *testing.T) {
	var frames []probe
	for _, test := range checkTests {
		frames = append(frames, framesOf(t, test.fail)...)
		frames = append(frames, framesOf(t, test.pass)...)
	}
	frames = append(frames, shapes(t)...)
	for _, checks := range []string{"off", "standard", "strict", allChecks()} {
		t.Run(strings.SplitAfter(checks, ",")[0], func(t *testing.T) {
			t.Parallel()
			s := lower(t, "default: drop\nchecks: "+checks)
			if s.program.Checks.Has(packet.OwnSource) {
				s.insert(t, "local", ownAddresses)
			}
			s.agreeOnce(t, frames)
		})
	}
}
