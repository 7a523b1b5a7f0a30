// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestRenew checks that a renewal keeps the number of the generation. If a renewal died, the next process that takes the lock must complete or undo
// it, so that all devices have the same program. Readers must see one generation at all times.
func TestRenew(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	ip(t, "link add fw2 type veth peer name fw3")
	ip(t, "link set fw2 up")
	s, err := datapath.OpenState(stateDir, true)
	if err != nil {
		t.Fatal(err)
	}
	hold := func() func() {
		t.Helper()
		unlock, err := s.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return unlock
	}
	manifest := func(when string) string {
		t.Helper()
		list, err := s.Running()
		if err != nil || len(list) != 1 || list[0].Number != 1 || len(list[0].Devices) != 2 {
			t.Fatalf("%s: %d generations run, %v", when, len(list), err)
		}
		defer datapath.CloseAll(list)
		return string(list[0].Manifest)
	}
	unlock := hold()
	install(t, s, "fw0", "fw2")
	if err := s.Renew(1, loadInside(t, always(70, 1)), []byte("whole"), nil); err != nil {
		t.Fatal(err)
	}
	if got := manifest("renewed"); got != "whole" || programOn(t, "fw0") != programOn(t, "fw2") {
		t.Fatalf("after a renewal: manifest %q", got)
	}
	unlock()
	before := "whole"
	for _, c := range []struct {
		name    string
		devices int
		renamed bool
		takes   bool // whether the renewal takes effect
	}{{"none", 0, false, false}, {"one", 1, false, false}, {"two", 2, false, true}, {"all", 2, true, true}} {
		unlock := hold()
		old := programOn(t, "fw0")
		if err := s.RenewPart(1, loadInside(t, always(70, 1)), []byte(c.name), c.devices, c.renamed); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		unlock()
		manifest(c.name + ", before the next lock")
		unlock = hold()
		want := before
		if c.takes {
			want = c.name
		}
		now := programOn(t, "fw0")
		if got := manifest(c.name); got != want || programOn(t, "fw2") != now || (now != old) != c.takes {
			t.Errorf("%s: manifest %q, want %q; programs %d before, %d and %d now", c.name, got, want, old, now, programOn(t, "fw2"))
		}
		if left, _ := filepath.Glob(stateDir + "/renewal-*"); left != nil {
			t.Errorf("%s: left behind: %v", c.name, left)
		}
		before = want
		unlock()
	}
	unlock = hold()
	defer unlock()
	if _, err := s.Install(loadInside(t, always(70, 1)), []byte("trial"), on("fw0", "fw2"), ending(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := s.Renew(1, loadInside(t, always(70, 1)), []byte("x"), nil); err != datapath.ErrNotSettled {
		t.Errorf("during a trial: %v", err)
	}
	if err := s.Unload(); err != nil {
		t.Fatal(err)
	}
}
