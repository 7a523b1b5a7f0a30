// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestReadLine(t *testing.T) {
	for _, row := range []struct{ line, want string }{
		{"192.0.2.1", "192.0.2.1/32"},
		{"0.0.0.0", "0.0.0.0/32"},
		{"255.255.255.255", "255.255.255.255/32"},
		{"10.2.30.4", "10.2.30.4/32"},
		{"192.0.2.1\t7", "192.0.2.1/32"},
		{"192.0.2.1 7", "192.0.2.1/32"},
		{"  192.0.2.1  ", "192.0.2.1/32"},
		{"192.0.2.1,US,evil", "192.0.2.1/32"},
		{"192.0.2.1;SBL1234", "192.0.2.1/32"},
		{"192.0.2.0/24 ; SBL1234", "192.0.2.0/24"},
		{"192.0.2.1#comment", "192.0.2.1/32"},
		{"192.0.2.1 # a - b", "192.0.2.1/32"},
		{"192.0.2.1,-", "192.0.2.1/32"},
		{"192.0.2.1\r", "192.0.2.1/32"},
		{"192.0.2.77/24", "192.0.2.0/24"},
		{"255.255.255.255/32", "255.255.255.255/32"},
		{"192.0.2.0-192.0.2.3", "192.0.2.0/30"},
		{"192.0.2.0 - 192.0.2.3", "192.0.2.0/30"},
		{"192.0.2.0 -192.0.2.3", "192.0.2.0/30"},
		{"192.0.2.0-\t192.0.2.3 x", "192.0.2.0/30"},
		{"192.0.2.0 - 192.0.2.3 , 000 , x", "192.0.2.0/30"},
		{"2001:db8::1", "2001:db8::1/128"},
		{"2001:DB8::1/32", "2001:db8::/32"},
		{"2001:db8:: - 2001:db8::f", "2001:db8::/124"},
		{"::192.0.2.1", "::c000:201/128"},
		{"", ""},
		{"   \t", ""},
		{"# 192.0.2.1", ""},
		{"; 192.0.2.1", ""},
		{"\r", ""},
	} {
		for _, around := range [][2]string{{}, {"", "\n"}, {"", "\r\n"}, {"\n", "\n# so that more than a line is left\n"}} {
			set, entries, err := Read(strings.NewReader(around[0]+row.line+around[1]), "list", 1)
			if err != nil {
				t.Errorf("%q: %v", row.line, err)
				continue
			}
			var got []string
			for p := range set.Prefixes() {
				got = append(got, p.String())
			}
			if strings.Join(got, " ") != row.want || entries != len(got) {
				t.Errorf("%q: got %v, %d entries, want %s", row.line, got, entries, row.want)
			}
		}
	}
}

func TestReadBadLine(t *testing.T) {
	const not = "not an address, prefix or range: "
	for _, row := range []struct{ line, want string }{
		{"foo", not + `"foo"`},
		{"foo bar", not + `"foo"`},
		{"192.0.2", not + `"192.0.2"`},
		{"192.0.2.", not + `"192.0.2."`},
		{"192.0.2.256", not + `"192.0.2.256"`},
		{"256.0.2.1", not + `"256.0.2.1"`},
		{"192.0.2.00", not + `"192.0.2.00"`},
		{"01.0.2.1", not + `"01.0.2.1"`},
		{"192..2.1", not + `"192..2.1"`},
		{".192.0.2.1", not + `".192.0.2.1"`},
		{"192.0.2.1.5", not + `"192.0.2.1.5"`},
		{"192.0.2.1234", not + `"192.0.2.1234"`},
		{"192.0.2.01", not + `"192.0.2.01"`},
		{"192.0.2.1x", not + `"192.0.2.1x"`},
		{"192.0.2.1:80", not + `"192.0.2.1:80"`},
		{"192.0.2.0/33", not + `"192.0.2.0/33"`},
		{"192.0.2.0/", not + `"192.0.2.0/"`},
		{"192.0.2.0/08", not + `"192.0.2.0/08"`},
		{"192.0.2.0/-8", not + `"192.0.2.0/-8"`},
		{"192.0.2.0/24/24", not + `"192.0.2.0/24/24"`},
		{"192.0.2.0/24-192.0.3.0/24", not + `"192.0.2.0/24-192.0.3.0/24"`},
		{"192.0.2.1-", not + `"192.0.2.1-"`},
		{"192.0.2.1 -", not + `"192.0.2.1-"`},
		{"192.0.2.1 - - [10/Oct/2000] GET", not + `"192.0.2.1--"`},
		{"192.0.2.1-foo", not + `"192.0.2.1-foo"`},
		{",192.0.2.1", not + `","`},
		{"2001:db8::/129", not + `"2001:db8::/129"`},
		{"2001:db8::g", not + `"2001:db8::g"`},
		{"::ffff:192.0.2.1", "::ffff:192.0.2.1 stands for an IPv4 address: write 192.0.2.1"},
		{"0:0:0:0:0:FFFF:c000:201 x", "0:0:0:0:0:FFFF:c000:201 stands for an IPv4 address: write 192.0.2.1"},
		{"::ffff:192.0.2.0/120", "::ffff:192.0.2.0/120 stands for IPv4 addresses: write 192.0.2.0/24"},
		{"::ffff:0.0.0.0/96", "::ffff:0.0.0.0/96 stands for IPv4 addresses: write 0.0.0.0/0"},
		{"::ffff:192.0.2.1-::ffff:192.0.2.9", "::ffff:192.0.2.1-::ffff:192.0.2.9 stands for IPv4 addresses: write the range with IPv4 addresses"},
		{"fe80::1%eth1", `address "fe80::1%eth1" has a zone, leave it out`},
		{"192.0.2.9-192.0.2.1", "range 192.0.2.9-192.0.2.1 ends before it begins, swap the ends"},
		{"192.0.2.1-2001:db8::", "the ends of range 192.0.2.1-2001:db8:: are of different families"},
		{"\x1f\x8b\x08", not + `"\x1f\x8b\b"`},
		{strings.Repeat("x", 70), not + `"` + strings.Repeat("x", 64) + `..."`},
	} {
		text := "\ufeff192.0.2.1\n\n" + row.line + "\n192.0.2.2\n"
		set, _, err := Read(strings.NewReader(text), "blocked.txt", 0)
		if want := "blocked.txt:3: " + row.want; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if set != nil {
			t.Errorf("%q: a set in spite of the error", row.line)
		}
	}
}

func TestReadManyBadLines(t *testing.T) {
	var text, want strings.Builder
	for i := range 12 {
		fmt.Fprintf(&text, "192.0.2.%d\nbad%d\n", i, i)
		if i < 10 {
			fmt.Fprintf(&want, "b:%d: not an address, prefix or range: \"bad%d\"\n", 2*i+2, i)
		}
	}
	// Lines after max entries are counted, but not parsed.
	text.WriteString("192.0.2.99\nbad beyond\n")
	want.WriteString("b: and 2 more lines\n")
	want.WriteString("b: 26 entries, but max is 24: raise max: of the set, or shorten the list")
	_, _, err := Read(strings.NewReader(text.String()), "b", 24)
	if diff := cmp.Diff(want.String(), fmt.Sprint(err)); diff != "" {
		t.Error(diff)
	}
}

func TestReadMax(t *testing.T) {
	const text = "192.0.2.1\n192.0.2.1\n# x\n2001:db8::/32\n192.0.2.1-192.0.2.9\n"
	if _, entries, err := Read(strings.NewReader(text), "l", 4); err != nil || entries != 4 {
		t.Errorf("got %d entries, %v", entries, err)
	}
	_, _, err := Read(strings.NewReader(text), "l", 3)
	if err == nil || err.Error() != "l: 4 entries, but max is 3: raise max: of the set, or shorten the list" {
		t.Errorf("got %v", err)
	}
}

func TestReadFails(t *testing.T) {
	broken := io.MultiReader(strings.NewReader("192.0.2.1\n"), iotest.ErrReader(errors.New("disk on fire")))
	if _, _, err := Read(broken, "l", 0); err == nil || err.Error() != "l:2: disk on fire" {
		t.Errorf("got %v", err)
	}
	_, _, err := Read(strings.NewReader(strings.Repeat("x", 2<<20)), "l", 0)
	if err == nil || err.Error() != "l:1: line is longer than 1 MiB, so this is not a list of addresses" {
		t.Errorf("got %v", err)
	}
	if _, _, err := ReadFile(filepath.Join(t.TempDir(), "none"), 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestReadFile reads a long file, for which the number of entries is estimated. All entries must be in the set, even if the estimate is wrong.
func TestReadFile(t *testing.T) {
	var text strings.Builder
	const n = 3 * sampleLines
	for i := range n {
		if i < n/2 {
			fmt.Fprintf(&text, "10.%d.%d.%d # a line that is longer than those further down\n", i>>15, i>>7&0xff, i<<1&0xff)
		} else {
			fmt.Fprintf(&text, "2001:db8::%x:%x:0\n", i>>8, i&0xff)
		}
	}
	path := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	set, entries, err := ReadFile(path, n)
	if err != nil {
		t.Fatal(err)
	}
	prefixes := 0
	for range set.Prefixes() {
		prefixes++
	}
	if entries != n || prefixes != n {
		t.Errorf("%d entries, %d prefixes, want %d", entries, prefixes, n)
	}
}

// TestReadFileInParts reads files in parts, and compares the result with that of the same lines read as a whole. The sets and the errors must be
// equal.
func TestReadFileInParts(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	r := rand.New(rand.NewPCG(15, 5))
	lines := []string{"\ufeff192.0.2.1"}
	for range 250_000 {
		a := addr4(r.Uint32())
		switch r.IntN(12) {
		case 0:
			lines = append(lines, fmt.Sprintf("%s/%d", a, 8+r.IntN(25)))
		case 1:
			lines = append(lines, fmt.Sprintf("2001:db8:%x::/%d", r.IntN(1<<16), 40+r.IntN(89)))
		case 2:
			lines = append(lines, "# "+strings.Repeat("x", r.IntN(90)))
		case 3:
			lines = append(lines, a.String()+", with a comment\r")
		case 4:
			lines = append(lines, fmt.Sprintf("%s - %s", a, addr4(number4(a)|uint32(r.IntN(1<<12)))))
		default:
			lines = append(lines, a.String())
		}
	}
	path := filepath.Join(t.TempDir(), "list")
	for _, c := range []struct {
		name, end string
		bad       []int // numbers of the bad lines
		max       int
	}{
		{"good", "\n", nil, 0},
		{"without an end of line", "", nil, 0},
		{"bad line in the first part", "\n", []int{3}, 0},
		{"bad lines in the last part", "\n", []int{200_000, 249_999}, 0},
		{"many bad lines", "\n", []int{9, 10, 11, 12, 13, 14, 15, 16, 17, 120_000, 130_000, 250_000}, 0},
		{"too many entries", "\n", nil, 200_000},
		{"bad line beyond the most entries", "\n", []int{30, 249_000}, 200_000},
		{"a line that is too long", strings.Repeat("x", maxLine+1), nil, 0},
	} {
		now := slices.Clone(lines)
		for _, n := range c.bad {
			now[n] = "bad"
		}
		text := strings.Join(now, "\n") + c.end
		if len(text) < 4*minListPart {
			t.Fatalf("%d bytes are too few", len(text))
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, entries, err := ReadFile(path, c.max)
		want, wantEntries, wantErr := Read(strings.NewReader(text), path, c.max)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%s: got %v\nwant %v", c.name, err, wantErr)
		}
		if entries != wantEntries || (got == nil) != (want == nil) || got != nil && !(got.Covers(want) && want.Covers(got) && got.Size() == want.Size()) {
			t.Errorf("%s: another set with %d entries, want %d", c.name, entries, wantEntries)
		}
		if (c.max > 0 || c.end == strings.Repeat("x", maxLine+1)) != (err != nil) {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
}
