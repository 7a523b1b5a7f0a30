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

// open opens and locks the state for as long as no process that the test starts wants the lock.
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

// TestTrialOutlivesProcess kills the process that installed the trial: nothing of it is needed.
func TestTrialOutlivesProcess(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	for _, devices := range []string{"fw0", "fw0 fw1*"} {
		// On a busy machine the trial may be over before anyone looks. Then the next is longer.
		for lasts := 2 * time.Second; !outlives(t, devices, lasts); lasts *= 2 {
		}
	}
}

// outlives reports whether the trial was seen after its process had gone, before it ended.
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

// TestKilledInstall kills processes at random points of an apply on trial. The old policy decides by the deadline, each
// time, and the next apply leaves nothing of it.
func TestKilledInstall(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	r := testutil.Random(t)
	testutil.Veth(t, "fw0", "fw1")
	killedInstalls(t, r, "fw0 fw1")
	killedInstalls(t, r, "fw0 fw1*")
}

func killedInstalls(t *testing.T, r *rand.Rand, devices string) {
	old := []*datapath.Program{policy(t, "old"), policy(t, "old"), policy(t, "old")}
	ends := map[string]int{}
	var takes time.Duration
	for i := range kills() / 2 {
		s, unlock := open(t)
		if _, err := s.Install(old[i%3], []byte("old"), in(devices), time.Time{}); err != nil {
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

// TestKilledEnd kills processes at random points of Confirm and Rollback. At every moment, and after the deadline, the
// same policy decides on all devices, and the next change completes the rest.
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
			if i == 0 { // which says how long the task takes, and must end in time also on a busy machine
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
			settled(t, s, after)
			unlock()
		}
		t.Logf("%s takes %v; right after the kill: %v", task, takes, ends)
	}
}

// same checks that one policy decides on both devices, and returns what decides. The devices are asked one after the other; so it asks
// again when the trial may have ended in between.
func same(t *testing.T, when string) string {
	t.Helper()
	got := state(t)
	if got == "new old" {
		got = state(t)
	}
	if got != "old old" && got != "new new" {
		t.Errorf("%s: %q decide", when, got)
	}
	return got
}

// settled does what is left to do of a trial, which must not change what decides, and unloads.
func settled(t *testing.T, s *datapath.State, decide string) {
	t.Helper()
	if err := s.FinishTrial(); err != nil {
		t.Errorf("settle: %v", err)
	}
	expect(t, "settled", decide)
	if err := s.Unload(); err != nil {
		t.Errorf("unload: %v", err)
	}
}

// TestKilledExchange kills processes at random points of a Rollback without a trial. Each device has the one policy or
// the other, another Rollback gives all devices the same, and the next apply leaves nothing of it.
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
