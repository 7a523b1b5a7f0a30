// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestBlockers makes each tool block a client of either family, and then unblock it.
func TestBlockers(t *testing.T) {
	testutil.RequireRoot(t)
	for _, tool := range []string{"iptables-legacy-restore", "ip6tables-legacy-restore", "nft", "ipset", "nginx"} {
		testutil.RequireTool(t, tool)
	}
	l, err := lab.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := &rig.Builder{Session: &rig.Session{}, Lab: l}
	defer b.Close()
	at, err := newSite(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	four, six := rig.RandomHosts(3), rig.RandomPrefixes(3)
	none := &rig.List{Hosts: true}
	for _, c := range blockers() {
		c.site = at
		for _, blocked := range []*rig.List{none, four, six} {
			if c.load == nil {
				continue
			}
			g, err := c.load(t.Context(), at, blocked)
			if err != nil {
				t.Fatalf("%s, %s: %v", c.label, blocked.Label, err)
			}
			if err := c.probe(t.Context(), blocked); err != nil {
				t.Errorf("%s: %v", c.label, err)
			}
			if _, err := lab.Serial(t.Context(), c.serial(blocked, 1)); err != nil {
				t.Errorf("%s, %s, a client that is not listed: %v", c.label, blocked.Label, err)
			}
			if err := g.Remove(); err != nil {
				t.Fatalf("%s, %s: %v", c.label, blocked.Label, err)
			}
			free := blocker{site: at}
			if err := free.probe(t.Context(), blocked); err != nil {
				t.Errorf("%s, %s, no longer blocked: %v", c.label, blocked.Label, err)
			}
		}
	}
	// A tool that blocks nothing must be detected. On a busy machine, an answer can come later than a probe waits.
	idle := blocker{site: at, load: blockByNft}
	found := func() bool {
		err = idle.probe(t.Context(), four)
		return err != nil
	}
	if !testutil.Eventually(time.Minute, found) || !strings.Contains(err.Error(), "is listed and gets an answer") {
		t.Errorf("nothing blocks: %v", err)
	}
}

func TestLists(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(file, []byte("10.0.0.0/8\n127.0.0.1\n9.9.9.0/24\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "own.txt")
	if err := os.WriteFile(own, []byte("10.0.0.0/16\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sizes := func(o rig.Options) (n []int) {
		lists, err := makeLists((&rig.Session{Options: o}))
		if err != nil {
			t.Fatal(err)
		}
		for _, prepare := range lists {
			n = append(n, len(prepare().Prefixes))
		}
		return n
	}
	full := listSizes((&rig.Session{}))
	for _, n := range publishedColumns {
		if !slices.Contains(full, n) {
			t.Errorf("the article's %d is missing", n)
		}
	}
	if len(full) != 54 || full[53] != 10_000_000 {
		t.Errorf("%d sizes, the last is %d; want 51 published ones and 3 more to 10 million", len(full), full[len(full)-1])
	}
	if got := sizes(rig.Options{Sizes: []int{70, 3, 3}}); !slices.Equal(got, []int{0, 3, 70}) {
		t.Errorf("sizes %v, want 0, 3, 70", got)
	}
	if got := sizes(rig.Options{List: file, Sizes: []int{5}}); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("sizes %v, want 0 and 2: what has the lab's own addresses is left out", got)
	}
	l, err := rig.ReadList(file)
	if err != nil {
		t.Fatal(err)
	}
	if visitor, ok := l.Visitor(); !ok || !netip.MustParsePrefix("9.9.9.0/24").Contains(visitor) {
		t.Errorf("the client is %v, %v; want one of 9.9.9.0/24", visitor, ok)
	}
	if _, err := makeLists((&rig.Session{Options: rig.Options{List: own}})); err == nil || !strings.Contains(err.Error(), own) {
		t.Errorf("a list of the lab's own addresses: %v", err)
	}
}

// blockOf returns an experiment after two rounds. The parameter us has the microseconds of the requests by entries and case. The second round takes
// longer. The parameter more is the difference.
func blockOf(us map[int]map[string]float64, more time.Duration) *blocklist {
	s := &rig.Session{Options: rig.Options{Rounds: 2}, Outcome: &report.Outcome{Name: "blocklist"}}
	b := &blocklist{Builder: &rig.Builder{Session: s}, blockers: blockers()}
	for _, entries := range []int{0, fewRules, publishedMost / 2, publishedMost, 10_000_000} {
		p := newPoint("n="+report.CountText(entries), report.CountText(entries)+" addresses", entries, b.blockers)
		b.points = append(b.points, p)
		for _, r := range p.rows {
			value := us[entries][r.Kind]
			if value == 0 {
				r.Missing = "not there"
				continue
			}
			for round := range 2 {
				t := 1000*value + float64(round)*float64(more)
				r.Rounds = append(r.Rounds, rig.Reading{"mean-ns": t, half: t, "p99-ns": 2 * t, "p999-ns": 3 * t})
			}
		}
	}
	return b
}

// asPublished has the proportions of the article, and the proportions expected of Floodwall.
func asPublished() map[int]map[string]float64 {
	us := map[int]map[string]float64{}
	for entries, rules := range map[int]float64{0: 76, fewRules: 110, publishedMost / 2: 804, publishedMost: 1506, 10_000_000: 0} {
		us[entries] = map[string]float64{
			noFirewall: 70, noneAgain: 73, ourBlocker: 74, "nft": 75, ipsetBlocker: 76, rulesBlocker: rules,
		}
	}
	return us
}

func TestBlocklistClaims(t *testing.T) {
	const none = report.NotMeasurable
	for _, tt := range []struct {
		entries int
		name    string
		us      float64 // 0: not measured
		want    [4]report.Verdict
	}{
		{0, "", 0, [4]report.Verdict{report.Confirmed, report.Confirmed, report.Confirmed, report.Confirmed}},
		{publishedMost, rulesBlocker, 200, [4]report.Verdict{report.Confirmed, report.Refuted, report.Confirmed, report.Confirmed}},
		{publishedMost / 2, rulesBlocker, 150, [4]report.Verdict{report.Confirmed, report.Refuted, report.Confirmed, report.Confirmed}},
		{publishedMost / 2, ipsetBlocker, 2000, [4]report.Verdict{report.Refuted, report.Confirmed, report.Confirmed, report.Confirmed}},
		{publishedMost, rulesBlocker, 9000, [4]report.Verdict{report.Refuted, report.Refuted, report.Confirmed, report.Confirmed}},
		{publishedMost, rulesBlocker, 0, [4]report.Verdict{none, none, report.Confirmed, report.Confirmed}},
		{publishedMost / 2, rulesBlocker, 0, [4]report.Verdict{report.Confirmed, none, report.Confirmed, report.Confirmed}},
		{publishedMost, ipsetBlocker, 90, [4]report.Verdict{report.Confirmed, report.Confirmed, report.Refuted, report.Confirmed}},
		{publishedMost, ipsetBlocker, 0, [4]report.Verdict{none, report.Confirmed, none, report.Confirmed}},
		{fewRules, rulesBlocker, 150, [4]report.Verdict{report.Confirmed, report.Confirmed, report.Confirmed, report.Refuted}},
		{fewRules, rulesBlocker, 0, [4]report.Verdict{report.Confirmed, report.Confirmed, report.Confirmed, none}},
	} {
		us := asPublished()
		us[tt.entries][tt.name] = tt.us
		var got [4]report.Verdict
		for i, c := range blockOf(us, 100*time.Nanosecond).claims() {
			got[i] = c.Verdict
			if c.Here == "" || c.Unsteady {
				t.Errorf("%+v", c)
			}
		}
		if got != tt.want {
			t.Errorf("%s takes %g µs with %d entries: %q, want %q", tt.name, tt.us, tt.entries, got, tt.want)
		}
	}
}

func TestTables(t *testing.T) {
	us := asPublished()
	us[10_000_000] = map[string]float64{noFirewall: 70, noneAgain: 73, ourBlocker: 75}
	b := blockOf(us, 2*time.Microsecond)
	b.publish()
	want := [][]string{
		{"", "0", "4,000", "25,000", "50,000", "10,000,000"},
		{"no firewall", "0.071", "0.071", "0.071", "0.071", "0.071"},
		{"iptables: a rule each (article)", "0.76", "", "8.04", "12.06", ""},
		{"iptables: a rule each", "0.077", "0.111", "0.805", "1.507", ""},
	}
	if diff := cmp.Diff(want, b.Outcome.Tables[0].All()[:4]); diff != "" {
		t.Errorf("means (-want +got):\n%s", diff)
	}
	// The median is 70, 72, 73 and 75 µs without a firewall, and the 99th percentile is twice as much.
	var bars []string
	for _, bar := range b.Outcome.Bars {
		bars = append(bars, bar.Name+" "+bar.String())
	}
	const name = "blocklist/n=10,000,000/floodwall "
	if diff := cmp.Diff([]string{name + "p50 µs <= 75 MISSED", name + "p99 µs <= 150 MISSED"}, bars); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
	for i, title := range map[int]string{1: "with 50,000 addresses", 2: "with 10,000,000 addresses", 3: "loading"} {
		if got := b.Outcome.Tables[i]; !strings.HasSuffix(got.Title, title) {
			t.Errorf("table %d is %q, want %q", i, got.Title, title)
		}
	}
	if row := strings.Join(b.Outcome.Tables[2].Rows[2], "|"); row != "iptables: one ipset|||||||||||||not there" {
		t.Errorf("a row without figures: %q", row)
	}
	for _, c := range b.Outcome.Curves {
		for _, p := range c.Points {
			if c.LogX && p[0] <= 0 || !c.LogX && p[0] > publishedMost {
				t.Errorf("curve %s has a point at %g", c.Name, p[0])
			}
		}
	}
}

// TestBarWithinNoise checks that Floodwall meets its bar with the time of the slowest round without a firewall. This difference is noise.
func TestBarWithinNoise(t *testing.T) {
	us := asPublished()
	us[10_000_000] = map[string]float64{noFirewall: 70, noneAgain: 73, ourBlocker: 74}
	b := blockOf(us, 2*time.Microsecond)
	b.publish()
	for _, bar := range b.Outcome.Bars {
		if !bar.Met {
			t.Errorf("%s %s, of %g", bar.Name, bar, bar.Value)
		}
	}
	if len(b.Outcome.Bars) != 2 {
		t.Errorf("%d bars, want 2", len(b.Outcome.Bars))
	}
}
