// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// long is the length of trials that must not expire during a test, also on a busy machine. The test or expire ends them.
const long = time.Hour

// TestTrial has pairs of an old and a new policy on different devices. An asterisk means generic mode. It checks which policy decides on fw0 and fw1
// before and after the deadline.
func TestTrial(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	s := cable(t)
	for _, test := range []struct{ old, new, during, after, settled string }{
		{"fw0", "fw0", "new", "old", "old"},
		{"fw0*", "fw0*", "new", "old", "old"},
		{"fw0 fw1", "fw0 fw1", "new new", "old old", "old old"},
		{"fw0 fw1*", "fw1* fw0", "new new", "old old", "old old"},
		{"fw0* fw1*", "fw0* fw1*", "new new", "old old", "old old"},
		{"", "fw0", "new", "pass", ""},
		{"", "fw0* fw1", "new new", "pass pass", ""},
		{"fw0", "fw1", "pass new", "old pass", "old"},
		{"fw0*", "fw1", "pass new", "old pass", "old"},
		{"fw0", "fw0 fw1*", "new new", "old pass", "old"},
		{"fw0 fw1*", "fw0", "new pass", "old old", "old old"},
	} {
		name := test.old + " to " + test.new
		if test.old != "" {
			put(t, s, "old", 0, in(test.old))
		}
		got := put(t, s, "new", long, in(test.new))
		if len(got) != len(in(test.new)) {
			t.Errorf("%s: installed on %d devices", name, len(got))
		}
		expect(t, name+": on trial", test.during)
		runsBoth(t, s, test.new, test.old)
		expire(t, s)
		expect(t, name+": expired", test.after)
		runsBoth(t, s, test.old, "")
		if err := s.FinishTrial(); err != nil {
			t.Errorf("%s: settle: %v", name, err)
		}
		expect(t, name+": settled", test.settled)
		if trial, err := s.Trial(); trial != nil || err != nil {
			t.Errorf("%s: settled, and there is a trial: %+v, %v", name, trial, err)
		}
		if err := s.Unload(); err != nil && test.old != "" {
			t.Errorf("%s: unload: %v", name, err)
		}
		s = locked(t)
	}
}

// runsBoth checks the results of Running and Standby: the devices of the policy that decides, and those of the other policy.
func runsBoth(t *testing.T, s *datapath.State, now, other string) {
	t.Helper()
	got := running(t, s)
	if want := len(strings.Fields(now)); want != len(strings.Fields(got))-1 && (want != 0 || got != "nothing") {
		t.Errorf("%q runs, want %d devices", got, want)
	}
	g, err := s.Standby()
	if err != nil {
		t.Fatal(err)
	}
	if g != nil {
		defer g.Close()
	}
	if (g != nil) != (other != "") || g != nil && string(g.Manifest) != "old" {
		t.Errorf("standby is %+v, want one of %q", g, other)
	}
}

// TestTrialPackets checks the deadline with packets on a veth, in both modes.
func TestTrialPackets(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	s := cable(t)
	for _, device := range []string{"fw0", "fw0*"} {
		put(t, s, "old", 0, in(device))
		put(t, s, "new", long, in(device))
		for _, want := range []string{"new", "old"} {
			if want == "old" {
				expire(t, s)
			}
			got := counts(t, func() {
				if err := testutil.Send("fw1", syn, 1000); err != nil {
					t.Fatal(err)
				}
			})
			if got != want {
				t.Errorf("%s: %s counts the packets, want %s", device, got, want)
			}
		}
		unloadAll(t, s)
		s = locked(t)
	}
}

// TestConfirm checks the state after a confirmed trial: one generation is attached, and one is kept.
func TestConfirm(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	s := cable(t)
	if err := s.Confirm(); !errors.Is(err, datapath.ErrNoTrial) {
		t.Errorf("confirm without anything: %v", err)
	}
	put(t, s, "older", 0, in("fw0 fw1*"))
	put(t, s, "old", 0, in("fw0 fw1*"))
	havePins(t, "two applied", "generation-1", "generation-2", "links/fw0", "links/fw1")
	put(t, s, "new", long, in("fw0"))
	havePins(t, "on trial", "generation-1", "generation-2", "generation-3", "trial-3", "links/fw0", "links/fw1")
	if trial, err := s.Trial(); err != nil || trial.New != 3 || trial.Old != 2 || trial.Left() > long || trial.Expired() {
		t.Errorf("trial %+v, %v", trial, err)
	}
	const soon = 10 * time.Second // long enough to confirm, however busy the machine is
	begin(t, s, soon)
	if err := s.Confirm(); err != nil {
		t.Fatal(err)
	}
	havePins(t, "confirmed", "generation-2", "generation-3", "links/fw0")
	time.Sleep(soon)
	expect(t, "confirmed", "new")
	if got := running(t, s); got != "new: fw0" {
		t.Errorf("%q runs", got)
	}
	if err := s.Confirm(); !errors.Is(err, datapath.ErrNoTrial) {
		t.Errorf("confirm once more: %v", err)
	}
	put(t, s, "newer", long, in("fw0"))
	expire(t, s)
	if err := s.Confirm(); !errors.Is(err, datapath.ErrExpired) {
		t.Errorf("confirm after the deadline: %v", err)
	}
	expect(t, "not confirmed", "new")
	unloaded(t, s)
}

// TestRollback rolls back from trials, expired or not, and back and forth between confirmed generations.
func TestRollback(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	s := cable(t)
	rollback := func(when, want string, pins ...string) {
		t.Helper()
		if err := s.Rollback(); err != nil {
			t.Errorf("rollback %s: %v", when, err)
		}
		expect(t, "rolled back "+when, want)
		havePins(t, "rolled back "+when, pins...)
	}
	if err := s.Rollback(); !errors.Is(err, datapath.ErrNotLoaded) {
		t.Errorf("rollback of nothing: %v", err)
	}
	put(t, s, "older", long, in("fw0 fw1*"))
	rollback("the first trial", "")
	put(t, s, "older", 0, in("fw0 fw1*"))
	if err := s.Rollback(); !errors.Is(err, datapath.ErrNoPrevious) {
		t.Errorf("rollback of the first: %v", err)
	}
	put(t, s, "old", 0, in("fw0"))
	put(t, s, "new", long, in("fw1"))
	expect(t, "on trial", "pass new")
	rollback("a trial", "old", "generation-1", "generation-2", "links/fw0")
	put(t, s, "new", long, in("fw1"))
	expire(t, s)
	rollback("an expired trial", "old", "generation-1", "generation-2", "links/fw0")
	rollback("a policy", "older older", "generation-1", "generation-2", "links/fw0", "links/fw1")
	if got := running(t, s); got != "older: fw0 fw1" {
		t.Errorf("%q runs", got)
	}
	rollback("a rollback", "old", "generation-1", "generation-2", "links/fw0")
	put(t, s, "new", long, in("fw0 fw1"))
	if err := s.Confirm(); err != nil {
		t.Error(err)
	}
	rollback("what was confirmed", "old", "generation-2", "generation-3", "links/fw0")
	put(t, s, "newer", 0, in("fw1"))
	havePins(t, "applied after a rollback", "generation-2", "generation-4", "links/fw1")
	rollback("an apply after a rollback", "old", "generation-2", "generation-4", "links/fw0")
	unloaded(t, s)
}

// TestTrialReplaced installs over a trial. Rollback must still return to the old policy.
func TestTrialReplaced(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	s := cable(t)
	put(t, s, "old", 0, in("fw0"))
	put(t, s, "new", long, in("fw0 fw1"))
	put(t, s, "newer", long, in("fw1"))
	expect(t, "replaced", "pass newer")
	havePins(t, "replaced", "generation-1", "generation-3", "trial-3", "links/fw0", "links/fw1")
	expire(t, s)
	expect(t, "expired", "old pass")
	put(t, s, "new", long, in("fw0"))
	expect(t, "applied over an expired trial", "new")
	put(t, s, "newer", 0, in("fw0 fw1"))
	expect(t, "applied over a trial", "newer newer")
	if err := s.Rollback(); err != nil {
		t.Error(err)
	}
	expect(t, "rolled back", "old")
	unloaded(t, s)
}

// TestTrialFails runs trials in which a device refuses the program. Nothing may change, and an earlier trial must continue.
func TestTrialFails(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	before := testutil.Now()
	testutil.Veth(t, "fw2", "fw3")
	detach, err := testutil.AttachForeign("fw2")
	if err != nil {
		t.Fatal(err)
	}
	defer detach()
	s := cable(t)
	newer, err := datapath.Load(guarding(slots["newer"]), nil)
	if err != nil {
		t.Fatal(err)
	}
	fail := func(when, want string) {
		t.Helper()
		pinned := pins(t)
		for _, to := range []string{"none", "fw2", "fw0 fw2", "fw3* fw0 fw2", "fw3 fw3* fw2"} {
			if _, err := s.Install(newer, nil, in(to), ending(long)); err == nil {
				t.Errorf("%s: installed on %s", when, to)
			}
			expect(t, when+": failed on "+to, want)
			havePins(t, when+": failed on "+to, pinned...)
		}
	}
	load := func(name string, trial time.Duration, to string) {
		p, err := datapath.Load(guarding(slots[name]), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if _, err := s.Install(p, []byte(name), in(to), ending(trial)); err != nil {
			t.Fatal(err)
		}
	}
	fail("nothing", "")
	load("old", 0, "fw0")
	fail("one policy", "old")
	load("new", long, "fw0 fw1")
	fail("a trial", "new new")
	if trial, err := s.Trial(); err != nil || trial == nil || trial.Left() < long/2 {
		t.Errorf("trial: %+v, %v", trial, err)
	}
	unloaded(t, s)
	newer.Close()
	if left := testutil.Leftovers(before); left != nil {
		t.Errorf("left: %v", left)
	}
}
