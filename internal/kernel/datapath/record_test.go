// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// records returns the numbers and manifests of the records, newest first.
func records(t *testing.T, s *datapath.State) string {
	t.Helper()
	list, err := s.Records()
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, r := range list {
		text = append(text, fmt.Sprintf("%d:%s", r.Number, r.Manifest))
	}
	return strings.Join(text, " ")
}

// TestRecords makes generations without a program, alone and between others.
func TestRecords(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	s := cable(t)
	have := func(when, want string) {
		t.Helper()
		if got := records(t, s); got != want {
			t.Errorf("%s: records %q, want %q", when, got, want)
		}
	}
	add := func(manifest string, want int) {
		t.Helper()
		if n, err := s.AddRecord([]byte(manifest)); n != want || err != nil {
			t.Errorf("record %s is %d, %v, want %d", manifest, n, err, want)
		}
	}
	have("none", "")
	add("a", 1)
	add("", 2)
	if err := s.RemoveIfEmpty(); err != nil {
		t.Error(err)
	}
	have("not empty", "2: 1:a")
	if got := running(t, s); got != "nothing" {
		t.Errorf("%s runs", got)
	}
	if d := install(t, s, "fw0"); d[0].Generation != 3 {
		t.Errorf("installed generation %d, want 3", d[0].Generation)
	}
	add(strings.Repeat("long", 5000), 4)
	install(t, s, "fw0")
	install(t, s, "fw0")
	havePins(t, "three installed", "generation-1", "generation-2", "generation-4", "generation-5", "generation-6", "links/fw0")
	for n, fine := range map[int]bool{1: true, 2: true, 3: false, 4: true, 5: false, 6: false, 7: false} {
		if err := s.RemoveRecord(n); (err == nil) != fine {
			t.Errorf("removing record %d: %v", n, err)
		}
	}
	have("removed", "")
	havePins(t, "removed", "generation-5", "generation-6", "links/fw0")
	add("b", 7)
	unloaded(t, s)
	s = locked(t)
	add("a", 1)
	unloaded(t, s)
	s = locked(t)
	add("a", 1)
	if err := s.RemoveRecord(1); err != nil {
		t.Error(err)
	}
	if err := s.RemoveIfEmpty(); err != nil || len(testutil.LeftoverPins()) != 0 {
		t.Errorf("left: %v, %v", testutil.LeftoverPins(), err)
	}
}

// TestWithoutProgram installs a generation that runs on another target. If it is confirmed, the devices must be released. Otherwise they must have
// the old policy again.
func TestWithoutProgram(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	s := cable(t)
	elsewhere := func() {
		t.Helper()
		if _, err := s.Install(nil, []byte("elsewhere"), nil, ending(long)); err != nil {
			t.Fatal(err)
		}
		expect(t, "on trial elsewhere", "pass pass")
	}
	put(t, s, "old", 0, in("fw0 fw1*"))
	elsewhere()
	expire(t, s)
	expect(t, "expired", "old old")
	elsewhere()
	if err := s.Rollback(); err != nil {
		t.Error(err)
	}
	expect(t, "rolled back", "old old")
	if got := records(t, s); got != "" {
		t.Errorf("rolled back, and there are records: %s", got)
	}
	elsewhere()
	if err := s.Confirm(); err != nil {
		t.Error(err)
	}
	expect(t, "confirmed", "")
	if got := records(t, s); got != "2:elsewhere" {
		t.Errorf("confirmed, and there are records: %q", got)
	}
	unloaded(t, s)
}

// TestPrevious checks which generation Rollback would restore.
func TestPrevious(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	s := cable(t)
	previous := func(want string) {
		t.Helper()
		g, err := s.Previous()
		got := ""
		if g != nil {
			defer g.Close()
			got = string(g.Manifest)
		}
		if got != want || err != nil {
			t.Errorf("previous is %q, %v, want %q", got, err, want)
		}
	}
	previous("")
	put(t, s, "older", 0, in("fw0"))
	previous("")
	put(t, s, "old", 0, in("fw0"))
	previous("older")
	put(t, s, "new", long, in("fw0"))
	previous("old")
	if err := s.Confirm(); err != nil {
		t.Error(err)
	}
	previous("old")
	if err := s.Rollback(); err != nil {
		t.Error(err)
	}
	previous("new")
	ip(t, "link del fw0")
	latest, err := s.Latest()
	if err != nil || latest == nil || string(latest.Manifest) != "old" {
		t.Errorf("after its device has gone, the latest is %+v, %v", latest, err)
	}
}
