package addrs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestReadLine(t *testing.T) {
	for _, row := range []struct{ line, want string }{
		{"192.0.2.1", "192.0.2.1/32"},
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
		{"0.0.0.0/0", "0.0.0.0/0"},
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
		for _, end := range []string{"", "\n", "\r\n"} {
			set, entries, err := Read(strings.NewReader(row.line+end), "list", 1)
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
	// Lines beyond max are counted, but not looked at.
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

// A long file goes through the estimate of its size; every entry must be there whatever the estimate says.
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
