// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/internal/sources/geo"
	"github.com/floodwall/floodwall/test/testutil"
)

func setOf(t testing.TB, prefixes ...string) *addrs.Set {
	t.Helper()
	var b addrs.Builder
	for _, p := range prefixes {
		if err := b.Add(netip.MustParsePrefix(p)); err != nil {
			t.Fatal(err)
		}
	}
	return b.Set()
}

// world is a manifest with the set home of the country XX, and the database of the set.
type world struct {
	*manifest.Manifest
	file string
}

func newWorld(t *testing.T, prefixes ...string) *world {
	w := &world{&manifest.Manifest{}, filepath.Join(t.TempDir(), "geo.mmdb")}
	w.Live = []manifest.Live{{Set: "home", Geo: &manifest.Database{Wanted: geo.Wanted{Countries: []string{"XX"}}, File: w.file}}}
	w.write(t, prefixes...)
	w.Live[0].Origin, _ = Origin(feed.Store{}, &w.Live[0])
	w.Live[0].Sum, w.Live[0].Entries = manifest.SumOf(setOf(t, prefixes...)), len(prefixes)
	return w
}

// write writes a database, at a time of its own.
func (w *world) write(t *testing.T, prefixes ...string) {
	t.Helper()
	list := []testutil.Network{{Prefix: "203.0.113.0/24", Country: "YY"}}
	for _, p := range prefixes {
		list = append(list, testutil.Network{Prefix: p, Country: "XX"})
	}
	before := time.Now()
	if info, err := os.Stat(w.file); err == nil {
		before = info.ModTime()
	}
	if err := testutil.Write(w.file, list...); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(w.file, time.Time{}, before.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
}

// TestChanged exchanges the database of a set: only a change of the file is read, only a change of the addresses is reported, and a set whose file
// cannot be read keeps what it has.
func TestChanged(t *testing.T) {
	w := newWorld(t, "192.0.2.0/25", "198.51.100.0/24")
	changed := func(all bool) *Change {
		t.Helper()
		x, err := Changed(feed.Store{}, w.Manifest, all)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	if x := changed(false); len(x.Content)+len(x.Done) > 0 || !reflect.DeepEqual(x.Next[0], w.Live[0]) {
		t.Errorf("the same file changes %+v", x)
	}
	if x := changed(true); len(x.Content)+len(x.Done) > 0 {
		t.Errorf("the same file, read again, changes %+v", x)
	}
	w.write(t, "192.0.2.0/25", "198.51.100.0/24") // another file with the same addresses
	x := changed(false)
	if len(x.Content) != 1 || len(x.Done) > 0 || x.Next[0].Origin == w.Live[0].Origin || x.Next[0].Sum != w.Live[0].Sum {
		t.Errorf("the same addresses in another file: %+v", x)
	}
	w.write(t, "192.0.2.0/24")
	x = changed(false)
	if want := []Exchanged{{"home", 1, 2}}; !slices.Equal(x.Done, want) || x.Next[0].Entries != 1 || w.Live[0].Entries != 2 {
		t.Errorf("other addresses: %+v", x)
	}
	before := &ir.Program{Sets: []ir.Set{{Name: "home", Live: true, Static: setOf(t, "192.0.2.0/25")}, {Name: "home", Static: setOf(t, "192.0.2.0/25")}}}
	after := x.Applied(before)
	for i, want := range []string{"192.0.2.0/24", "192.0.2.0/25"} { // a set of the same name that is not live stays
		if got := manifest.SumOf(after.Sets[i].Static); got != manifest.SumOf(setOf(t, want)) || before.Sets[i].Static.Contains(netip.MustParseAddr("192.0.2.200")) {
			t.Errorf("set %d of the program has not the addresses of %s, or the program before has changed", i, want)
		}
	}
	if err := os.WriteFile(w.file, []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		x, err := Changed(feed.Store{}, w.Manifest, false)
		if err == nil || !strings.Contains(err.Error(), `set "home"`) || len(x.Content) > 0 || !reflect.DeepEqual(x.Next[0], w.Live[0]) {
			t.Errorf("%v: %+v", err, x)
		}
		os.Remove(w.file) // and again without a file
	}
	if s := StatusOf(feed.Store{}, &w.Live[0]); s.State != feed.StateFailing || s.Entries != 2 || s.From != "XX of "+w.file {
		t.Errorf("%+v", s)
	}
}

// TestHold makes random rules about a set of a database, with random contents before and after. If the new content drops a packet of an operator that
// passed before, the set must be held. If the operator's address neither joins nor leaves the set, it must not. No host has addresses of 198.18.7.0/24,
// which are for benchmarks (RFC 2544), or of 198.51.100.0/24, which are for documents.
func TestHold(t *testing.T) {
	r := testutil.Random(t)
	operator := netip.MustParsePrefix("198.18.7.9/32")
	contents := []*addrs.Set{
		setOf(t), setOf(t, "198.18.7.0/24"), setOf(t, "198.18.7.8/31"), setOf(t, "198.51.100.0/24"), setOf(t, "198.18.7.0/24", "198.51.100.0/24"), setOf(t, "198.18.7.9/32"),
	}
	held, harmed, kept := 0, 0, 0
	for range testutil.Scaled(3000, 50_000) {
		before, next := contents[r.IntN(len(contents))], contents[r.IntN(len(contents))]
		p := &ir.Program{Sets: []ir.Set{{Name: "home", Live: true, Static: before}, {Name: "other", Static: contents[r.IntN(len(contents))]}}, Default: []ir.Verdict{ir.Pass, ir.Drop}[r.IntN(2)]}
		for range 1 + r.IntN(3) {
			rule := ir.Rule{Name: "it", Verdict: []ir.Verdict{ir.Pass, ir.Drop}[r.IntN(2)], Observe: r.IntN(6) == 0}
			for range 1 + r.IntN(2) {
				rule.Src = append(rule.Src, ir.AddrMatch{Sets: []int{r.IntN(2)}, Not: r.IntN(2) == 0})
			}
			p.Rules = append(p.Rules, rule)
		}
		m := &manifest.Manifest{Operators: []netip.Prefix{operator}, Live: []manifest.Live{{Set: "home", Geo: &manifest.Database{}, Sum: "before"}}}
		x := &Change{Next: []manifest.Live{{Set: "home", Geo: &manifest.Database{}, Sum: "next"}}, Content: map[string]*addrs.Set{"home": next}, Done: []Exchanged{{Set: "home"}}}
		after := x.Applied(p)
		verdict := func(p *ir.Program) ir.Verdict {
			pkt := packet.Packet{Kind: packet.IP, Src: operator.Addr(), Dst: netip.MustParseAddr("203.0.113.1")}
			v, _ := p.Eval(&pkt, ir.World{})
			return v
		}
		err := x.Hold(m, p)
		var why *HeldError
		switch {
		case err == nil && (x.Content["home"] != next || x.Next[0].Sum != "next" || len(x.Done) != 1):
			t.Fatalf("no error, and %+v", x)
		case err != nil && (!errors.As(err, &why) || why.Set != "home" || x.Content["home"] != nil || x.Next[0].Sum != "before" || len(x.Done) > 0):
			t.Fatalf("%v, and %+v", err, x)
		case err != nil && before.Contains(operator.Addr()) == next.Contains(operator.Addr()):
			t.Fatalf("%v, and the operator's address neither joins nor leaves", err)
		case err != nil && why.Joins != next.Contains(operator.Addr()):
			t.Fatalf("%v, and the opposite is so", err)
		case err == nil && verdict(p) == ir.Pass && verdict(after) == ir.Drop:
			t.Fatalf("the operator is dropped by %s, and not by %s", after, p)
		}
		if err != nil {
			held++
		} else if before != next {
			kept++
		}
		if verdict(p) == ir.Pass && verdict(after) == ir.Drop {
			harmed++
		}
	}
	if held < 100 || harmed < 50 || kept < 100 {
		t.Errorf("%d held, %d of which would drop the operator, %d not held: too few", held, harmed, kept)
	}
}

// TestAlert has the two states of a list that need an operator, and one that does not.
func TestAlert(t *testing.T) {
	at := time.Now()
	for _, test := range []struct {
		status Status
		want   string
	}{
		{Status{Set: "a", State: feed.StateOK, Why: "nothing"}, ""},
		{Status{Set: "a", State: feed.StateFailing, Why: "404"}, ""},
		{Status{Set: "a", State: feed.StateStale, Age: 7200, Checked: &at, Why: "404"}, `set "a" was not brought up to date for 2h0m0s: 404`},
		{Status{Set: "a", State: feed.StateStale, Age: 7200}, `set "a": the clock was wrong when it was last brought up to date`},
		{Status{Set: "a", State: feed.StateHeld, Why: "it grew"}, `set "a": a new list is held: it grew`},
	} {
		if got := test.status.Alert(); got != test.want {
			t.Errorf("%+v: %q, and not %q", test.status, got, test.want)
		}
	}
}

// TestFeeds names sets. A set that is not fetched is an error, because nothing would be fetched.
func TestFeeds(t *testing.T) {
	live := []manifest.Live{{Set: "a", Feed: &feed.Source{Set: "a"}}, {Set: "home", Geo: &manifest.Database{}}, {Set: "b", Feed: &feed.Source{Set: "b"}}}
	if all, err := Feeds(live); err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	if one, err := Feeds(live, "b"); err != nil || len(one) != 1 || one[0].Set != "b" {
		t.Errorf("%+v, %v", one, err)
	}
	for _, name := range []string{"home", "c"} {
		if _, err := Feeds(live, "a", name); !errors.Is(err, ErrNoFeed) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
