// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// listLines returns n lines with single addresses, followed by the lines in more. For every sixteenth address, an adjacent address is also in the
// list. Some of these pairs are aligned.
func listLines(n int, more ...string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "66.%d.%d.%d\n2001:db8::%x:%x\n", i>>6, i&63, 4*(i&15), i, 4*(i&15))
		if i&15 == 3 {
			fmt.Fprintf(&b, "66.%d.%d.13\n2001:db8::%x:b\n", i>>6, i&63, i)
		}
	}
	return b.String() + strings.Join(more, "\n")
}

// TestNftLists checks that the kernel stores lists of addresses in hashes, even if some addresses are adjacent. If a list has many addresses and also
// ranges, the ranges must be in a separate set. The test compares counters with Eval for addresses in the lists and next to them.
func TestNftLists(t *testing.T) {
	testutil.RequireTool(t, "nft")
	if !testutil.Inside(t) {
		return
	}
	w := subject.NewWire(t)
	for _, test := range []struct{ name, list, want string }{
		{"addresses", listLines(100), "listed-v4 hash, listed-v6 hash"},
		{"a few ranges", "192.0.2.0/31\n192.0.2.5\n192.0.2.8-192.0.2.10\n2001:db8::a\n2001:db8::b\n2001:db8::d", "listed-v4 hash, listed-v6 hash"},
		{"ranges and few addresses", listLines(100, "192.0.2.0/24", "2001:db8:1::/48"), "listed-v4 intervals, listed-v6 intervals"},
		{"ranges and many addresses", listLines(1200, "192.0.2.0/24", "2001:db8:1::/48"),
			"listed-nets-v4 intervals, listed-nets-v6 intervals, listed-v4 hash, listed-v6 hash"},
		{"wide ranges", "192.0.2.0/24\n66.0.0.0/28\n2001:db8::/64", "listed-v4 intervals, listed-v6 intervals"},
	} {
		for _, rule := range []string{"from: $listed", "from: $listed, to: $listed"} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "list.txt"), []byte(test.list+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			s := subject.LowerFile(t, filepath.Join(dir, "policy.yaml"), "checks: off\nsets: {listed: {file: list.txt}}\nrules: [{name: list, "+rule+", then: drop}]")
			x, err := subject.ToNftables(s.Program, "")
			if err != nil {
				t.Fatal(err)
			}
			subject.Nft(t, x.Script, "-f", "-")
			if got := heldSets(t, x.Table); got != test.want {
				t.Errorf("%s, %s: the kernel has %s, want %s", test.name, rule, got, test.want)
			}
			sameCounters(t, w, test.name+", "+rule, s, x, besideLists(t, w))
			subject.Nft(t, "", "delete", "table", "inet", x.Table)
		}
	}
}

// heldSets returns the names and the forms of the sets of addresses that a table in the kernel has.
func heldSets(t *testing.T, table string) string {
	t.Helper()
	var list []string
	for set := range strings.SplitSeq(subject.Nft(t, "", "-t", "list", "table", "inet", table), "\tset ") {
		name, body, _ := strings.Cut(set, " {")
		if !strings.HasPrefix(name, "listed") {
			continue
		}
		form := "hash"
		if body, _, _ = strings.Cut(body, "}"); strings.Contains(body, "flags interval") {
			form = "intervals"
		}
		list = append(list, name+" "+form)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// besideLists returns frames whose addresses are in the lists or adjacent to entries.
func besideLists(t *testing.T, w *subject.Wire) (frames [][]byte) {
	t.Helper()
	var text strings.Builder
	v4 := []string{"66.0.3.12", "66.0.3.13", "66.0.3.14", "66.0.3.11", "66.1.0.0", "66.0.0.15", "66.0.0.16", "192.0.2.0", "192.0.2.1", "192.0.2.2", "192.0.2.5",
		"192.0.2.7", "192.0.2.8", "192.0.2.10", "192.0.2.11", "192.0.2.255", "192.0.3.0"}
	v6 := []string{"2001:db8::3:c", "2001:db8::3:b", "2001:db8::3:a", "2001:db8::a", "2001:db8::b", "2001:db8::c", "2001:db8:1::7", "2001:db8:2::"}
	for _, list := range [][]string{v4, v6} {
		for i, a := range list {
			fmt.Fprintf(&text, "udp %s:5 > %s:7\nudp %s:5 > %s:7\n", address(a), address(list[(i+1)%len(list)]), address(a), address(a))
		}
	}
	for _, f := range subject.FramesOf(t, text.String()) {
		if w.Send(f.Frame) {
			frames = append(frames, f.Frame)
		}
	}
	return frames
}

// address returns an address in the notation that FramesOf reads before a port.
func address(a string) string {
	if strings.Contains(a, ":") {
		return "[" + a + "]"
	}
	return a
}
