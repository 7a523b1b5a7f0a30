// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// set returns the list's content that Floodwall reads from the list's file.
func (l *List) set(t *testing.T) *addrs.Set {
	t.Helper()
	file := filepath.Join(t.TempDir(), "list.txt")
	if err := report.WriteFile(file, l.Write); err != nil {
		t.Fatal(err)
	}
	set, entries, err := addrs.ReadFile(file, 0)
	if err != nil || entries != len(l.Prefixes) {
		t.Fatalf("%d entries, %v; want %d", entries, err, len(l.Prefixes))
	}
	return set
}

func TestRandomLists(t *testing.T) {
	for _, l := range []*List{RandomHosts(1), RandomHosts(70_000), RandomPrefixes(50_000)} {
		t.Run(l.Label, func(t *testing.T) {
			set := l.set(t)
			sorted := slices.SortedFunc(slices.Values(l.Prefixes), netip.Prefix.Compare)
			if n := len(slices.Compact(sorted)); n != len(l.Prefixes) {
				t.Errorf("%d different prefixes of %d", n, len(l.Prefixes))
			}
			if i := slices.IndexFunc(l.Listed, func(a netip.Addr) bool { return !set.Contains(a) }); i >= 0 {
				t.Errorf("listed source %s is not in the list", l.Listed[i])
			}
			if i := slices.IndexFunc(l.Unlisted, set.Contains); i >= 0 {
				t.Errorf("unlisted source %s is in the list", l.Unlisted[i])
			}
			if len(l.Listed) != len(l.Prefixes) || len(l.Unlisted) < 1<<16 {
				t.Errorf("%d listed and %d unlisted sources", len(l.Listed), len(l.Unlisted))
			}
		})
	}
}

func TestScatterHitsAllNetworks(t *testing.T) {
	seen := map[byte]int{}
	for _, p := range RandomHosts(100_000).Prefixes {
		seen[p.Addr().As4()[0]]++
	}
	if len(seen) < 200 {
		t.Fatalf("only %d first bytes", len(seen))
	}
	for byte, n := range seen {
		if n < 300 || n > 700 {
			t.Errorf("%d addresses in %d.0.0.0/8, want about 465", n, byte)
		}
	}
}

func TestReadList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list.txt")
	text := "# a list\n1.2.3.4\t9\n5.6.0.0/16 ; x\n9.9.9.0-9.9.9.2\n2001:db8::/32\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := ReadList(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range l.Prefixes {
		got = append(got, p.String())
	}
	want := []string{"1.2.3.4/32", "5.6.0.0/16", "9.9.9.0/31", "9.9.9.2/32"}
	if diff := cmp.Diff(want, got); diff != "" || l.V6 || l.Hosts || l.Note == "" {
		t.Errorf("v6 %v, hosts %v, note %q, prefixes (-want +got):\n%s", l.V6, l.Hosts, l.Note, diff)
	}
	set := l.set(t)
	if slices.ContainsFunc(l.Unlisted, set.Contains) {
		t.Error("an unlisted source is in the list")
	}
}
