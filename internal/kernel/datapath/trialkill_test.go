// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// open opens and locks the state. The lock must be released before the test starts a process that needs it.
func open(t *testing.T) (*datapath.State, func()) {
	t.Helper()
	s, err := datapath.OpenState(stateDir, true)
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := s.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, unlock
}

// TestTrialOutlivesProcess kills the process that installed the trial. The trial must not need the process.
func TestTrialOutlivesProcess(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	for _, devices := range []string{"fw0", "fw0 fw1*"} {
		// On a busy machine the trial may end before the test checks it. Then the next trial is longer.
		for lasts := 2 * time.Second; !outlives(t, devices, lasts); lasts *= 2 {
		}
	}
}

// outlives reports whether the test has seen the trial after its process ended and before the trial ended.
func outlives(t *testing.T, devices string, lasts time.Duration) bool {
	t.Helper()
	s, unlock := open(t)
	defer unloadAll(t, s)
	old, err := datapath.Load(guarding(slots["old"]), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Install(old, nil, in(devices), time.Time{}); err != nil {
		t.Fatal(err)
	}
	old.Close()
	unlock()
	each := func(policy string) string {
		return strings.TrimSpace(strings.Repeat(policy+" ", len(in(devices))))
	}
	before := time.Now()
	whole(t, "install "+lasts.String()+" "+devices)
	got := state(t)
	inTime := time.Since(before) < lasts
	if inTime && got != each("new") {
		t.Errorf("the process has gone, %q decide, want %q", got, each("new"))
	}
	untilExpired(t, s)
	expect(t, "the deadline has passed", each("old"))
	return inTime
}

// TestKilledInstall kills processes at random points of an apply on trial. The old policy must decide at the deadline at
// the latest, and the next apply must remove all remains of the trial.
func TestKilledInstall(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	r := testutil.Random(t)
	testutil.Veth(t, "fw0", "fw1")
	old := inTurn(t, guarding(slots["old"]))
	killedInstalls(t, r, old, "fw0 fw1")
	killedInstalls(t, r, old, "fw0 fw1*")
}

func killedInstalls(t *testing.T, r *rand.Rand, old func() *datapath.Program, devices string) {
	ends := map[string]int{}
	var takes time.Duration
	for i := range kills() / 2 {
		s, unlock := open(t)
		if _, err := s.Install(old(), []byte("old"), in(devices), time.Time{}); err != nil {
			t.Fatal(err)
		}
		if found := pins(t); len(found) != min(i+1, 2)+2 {
			t.Errorf("run %d begins with %v", i, found)
		}
		unlock()
		task := "install 250ms " + devices
		if i == 0 {
			takes = whole(t, task)
		} else {
			killIn(t, r, task, takes)
		}
		killed := time.Now()
		ends[state(t)]++
		if !hasEntering(t, device(t, "fw0")) || !hasEntering(t, device(t, "fw1")) {
			t.Errorf("killed in run %d, XDP passes what nothing makes sense of", i)
		}
		time.Sleep(time.Until(killed.Add(250 * time.Millisecond)))
		expect(t, "killed in run "+strconv.Itoa(i), "old old")
		if got := running(t, s); got != "old: fw0 fw1" {
			t.Errorf("killed in run %d, %q runs", i, got)
		}
	}
	t.Logf("%s, an apply takes %v; right after the kill: %v", devices, takes, ends)
	s, unlock := open(t)
	defer unlock()
	put(t, s, "old", 0, in(devices))
	if found := pins(t); len(found) != 4 {
		t.Errorf("left: %v", found)
	}
	unloaded(t, s)
}

// TestKilledEnd kills processes at random points of Confirm and Rollback. At every moment, and after the deadline, the same policy must decide on all
// devices. The next change must complete the rest.
func TestKilledEnd(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	r := testutil.Random(t)
	testutil.Veth(t, "fw0", "fw1")
	old, trial := policy(t, "old"), policy(t, "new")
	for _, task := range []string{"confirm", "rollback"} {
		ends := map[string]int{}
		var takes time.Duration
		for i := range kills() / 4 {
			lasts := time.Second
			if i == 0 { // the first run measures how long the task takes, and must end in time on a busy machine, too
				lasts = time.Minute
			}
			s, unlock := open(t)
			for _, err := range []error{installed(s, old, 0), installed(s, trial, lasts)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			end := time.Now().Add(lasts)
			unlock()
			if i == 0 {
				takes = whole(t, task)
			} else {
				killIn(t, r, task, takes)
			}
			after := same(t, "killed in "+task)
			ends[after+" "+strconv.Itoa(len(pins(t)))+" pins"]++
			if task == "confirm" && i > 0 {
				time.Sleep(time.Until(end))
				after = same(t, "deadline after "+task)
			}
			s, unlock = open(t)
			settled(t, s, after, end)
			unlock()
		}
		t.Logf("%s takes %v; right after the kill: %v", task, takes, ends)
	}
}

// same checks that the same policy decides on both devices, and returns its name. It tests the devices one after the other, so it repeats the test if
// the trial may have ended in between.
func same(t *testing.T, when string) string {
	t.Helper()
	one := func(s string) bool { return s == "old old" || s == "new new" }
	got := state(t)
	if !one(got) {
		got = state(t)
	}
	if !one(got) {
		t.Errorf("%s: %q decide", when, got)
	}
	return got
}

// settled completes the remains of a trial, which must not change the policy that decides, and then unloads. On a busy machine the trial may have
// ended since the test checked the policy.
func settled(t *testing.T, s *datapath.State, decide string, end time.Time) {
	t.Helper()
	if err := s.FinishTrial(); err != nil {
		t.Errorf("settle: %v", err)
	}
	got := state(t)
	if got != decide && !(decide == "new new" && got == "old old" && time.Now().After(end)) {
		t.Errorf("settled, %q decide, want %q", got, decide)
	}
	if err := s.Unload(); err != nil {
		t.Errorf("unload: %v", err)
	}
}

// TestKilledExchange kills processes at random points of a Rollback without a trial. Each device must then have one of the two policies. Another
// Rollback must give all devices the same policy, and the next apply must remove all remains.
func TestKilledExchange(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	r := testutil.Random(t)
	testutil.Veth(t, "fw0", "fw1")
	old, now := policy(t, "old"), policy(t, "new")
	ends := map[string]int{}
	var takes time.Duration
	for i := range kills() / 4 {
		s, unlock := open(t)
		for _, err := range []error{installed(s, old, 0), installed(s, now, 0)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		unlock()
		if i == 0 {
			takes = whole(t, "rollback")
		} else {
			killIn(t, r, "rollback", takes)
		}
		ends[state(t)]++
		s, unlock = open(t)
		if err := s.Rollback(); err != nil {
			t.Errorf("run %d: rollback: %v", i, err)
		}
		same(t, "rolled back in run "+strconv.Itoa(i))
		put(t, s, "newer", 0, in("fw0 fw1*"))
		if found := pins(t); len(found) != 4 {
			t.Errorf("run %d: left: %v", i, found)
		}
		if err := s.Unload(); err != nil {
			t.Errorf("run %d: unload: %v", i, err)
		}
		unlock()
	}
	t.Logf("it takes %v; right after the kill: %v", takes, ends)
}

func installed(s *datapath.State, p *datapath.Program, trial time.Duration) error {
	_, err := s.Install(p, nil, in("fw0 fw1*"), ending(trial))
	return err
}

// kills is how often a process is killed.
func kills() int { return testutil.Scaled(10, 600) }
