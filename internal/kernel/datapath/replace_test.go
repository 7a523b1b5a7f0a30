// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestReplace replaces the running generation, at once and with a trial. Rollback must return to the generation before both.
func TestReplace(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	s := locked(t)
	running := func(when string, want int) {
		t.Helper()
		list, err := s.Running()
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		defer datapath.CloseAll(list)
		if len(list) != 1 || list[0].Number != want {
			t.Fatalf("%s: %d generations run, the first is %d, want %d", when, len(list), list[0].Number, want)
		}
	}
	do := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	replace := func(old int, trial time.Duration) {
		t.Helper()
		_, err := s.Replace(old, loadInside(t, always(70, 1)), []byte("manifest"), on("fw0"), ending(trial))
		do("replacing", err)
	}
	install(t, s, "fw0") // 1
	install(t, s, "fw0") // 2
	replace(2, 0)        // 3
	running("replaced", 3)
	do("finishing", s.Succeed(3))
	do("finishing again", s.Succeed(3))
	replace(3, time.Minute) // 4
	do("ending the trial", s.Rollback())
	running("after a trial that was given up", 3)
	replace(3, time.Minute) // 4
	do("confirming", s.Confirm())
	do("finishing", s.Succeed(4))
	running("after both", 4)
	do("rolling back", s.Rollback())
	running("at last", 1)
	do("rolling back", s.Rollback())
	running("and back", 4)
	do("finishing what replaces nothing", s.Succeed(1))
	do("unloading", s.Unload())
}

// TestNote writes, replaces and reads notes.
func TestNote(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	s := locked(t)
	install(t, s, "fw0")
	for _, want := range []string{"", "a note", "another one"} {
		if want != "" {
			if err := s.SetNote(1, datapath.NoteSource, []byte(want)); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := s.Note(1, datapath.NoteSource); string(got) != want || err != nil {
			t.Errorf("note %q, %v, want %q", got, err, want)
		}
	}
	if got, err := s.Note(1, datapath.NoteCounted); got != nil || err != nil {
		t.Errorf("a note that is not there: %q, %v", got, err)
	}
	if err := s.Unload(); err != nil {
		t.Fatal(err)
	}
}
