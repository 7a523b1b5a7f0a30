// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// expecting appends a verdict to each line.
func expecting(lines, verdict string) string {
	return strings.ReplaceAll(strings.TrimSpace(lines), "\n", verdict+"\n") + verdict + "\n"
}

// TestChecks sends the packets of checkTests to each check alone. Packets that name a check must fail it. All other packets must pass it.
func TestChecks(t *testing.T) {
	all := subject.Shapes(t)
	r, _ := subject.Seeded(t)
	all = append(all, subject.RandomFrames(r, packet.Hints{}, testutil.Scaled(600, 2000))...)
	for check := range packet.NumChecks {
		t.Run(check.String(), func(t *testing.T) {
			t.Parallel()
			test, ok := subject.CheckTests[check]
			if !ok {
				t.Fatal("no packets")
			}
			s := subject.Lower(t, "checks: {profile: off, "+check.String()+": on}")
			if check == packet.OwnSource {
				s.Insert(t, "local", subject.OwnAddresses)
			}
			frames := s.Cases(t, expecting(test.Fail, " drop "+check.String()))
			frames = append(frames, casesNot(t, s, test.Pass, check)...)
			s.AgreeOnce(t, append(frames, all...))
		})
	}
}

// casesNot checks that frames do not fail a check. Some of the frames contain no IP packet.
func casesNot(t *testing.T, s *subject.Subject, lines string, check packet.Check) []subject.Probe {
	t.Helper()
	frames := subject.FramesOf(t, lines)
	for _, f := range frames {
		if verdict, reason := s.Eval(f); verdict != 0 && !structural(s, reason, check) {
			t.Errorf("%s: %s %s, want that it does not fail %s", f.Name, verdict, s.Program.ReasonName(reason), check)
		}
	}
	return frames
}

// structural reports whether a reason is a structural check, but not the check than.
func structural(s *subject.Subject, r ir.Reason, than packet.Check) bool {
	return slices.ContainsFunc(s.Program.Structural(), func(x ir.Structural) bool {
		return x.Check != than && x.Check.String() == s.Program.ReasonName(r)
	})
}

// TestProfiles sends all packets that fail a check to the profiles, and to all checks at once.
func TestProfiles(t *testing.T) {
	var frames []subject.Probe
	for _, test := range subject.CheckTests {
		frames = append(frames, subject.FramesOf(t, test.Fail)...)
		frames = append(frames, subject.FramesOf(t, test.Pass)...)
	}
	frames = append(frames, subject.Shapes(t)...)
	for _, checks := range []string{"off", "standard", "strict", subject.AllChecks()} {
		t.Run(strings.SplitAfter(checks, ",")[0], func(t *testing.T) {
			t.Parallel()
			s := subject.Lower(t, "default: drop\nchecks: "+checks)
			if s.Program.Checks.Has(packet.OwnSource) {
				s.Insert(t, "local", subject.OwnAddresses)
			}
			s.AgreeOnce(t, frames)
		})
	}
}
