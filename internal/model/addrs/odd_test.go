// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOddLines reads files with unreadable lines. One such line in a hundred must be left out and reported; with more, the file must be
// refused.
func TestOddLines(t *testing.T) {
	for _, row := range []struct {
		good, odd int
		want      string
	}{
		{200, 2, "list: 2 of 202 lines are not understood, and left out: line 201: not an address, prefix or range: \"<div>\"; line 202: not an address, prefix or range: \"<div>\""},
		{200, 3, "list:203: not an address, prefix or range: \"<div>\""},
		{50, 1, "list:51: not an address, prefix or range: \"<div>\""},
	} {
		var text strings.Builder
		for i := range row.good {
			fmt.Fprintf(&text, "192.0.2.%d\n", i)
		}
		text.WriteString(strings.Repeat("<div>\n", row.odd))
		l := list{name: "list"}
		got, err := l.read(strings.NewReader(text.String()))
		if all := got.Odd + fmt.Sprint(err); !strings.Contains(all, row.want) || err == nil && got.Entries != row.good {
			t.Errorf("%d lines and %d odd ones: %d entries, %s", row.good, row.odd, got.Entries, all)
		}
	}
}

// TestWideLines reads files with prefixes that are too short. One kind has host bits set after a short length, such as a path after an
// address in a URL. The other kind covers all addresses.
func TestWideLines(t *testing.T) {
	for line, want := range map[string]string{
		"84.0.2.10/1":        "list:1: 84.0.2.10/1 has host bits set, and /1 is too short for a mistake of them: write 84.0.2.10 for the address",
		"2001:db8::1/4":      "list:1: 2001:db8::1/4 has host bits set, and /4 is too short for a mistake of them: write 2001:db8::1 for the address",
		"0.0.0.0/0":          "list:1: 0.0.0.0/0 is every address: a list of all needs no list, so leave from: $SET out of the rule",
		"1.2.3.4/0":          "list:1: 1.2.3.4/0 has host bits set, and /0 is too short for a mistake of them: write 1.2.3.4 for the address",
		"::/0":               "list:1: ::/0 is every address: a list of all needs no list, so leave from: $SET out of the rule",
		"64.0.0.0/2":         "<nil>",
		"192.0.2.1/24":       "<nil>",
		"84.0.2.10 /1":       "list:1: 84.0.2.10/1 has host bits set, and /1 is too short for a mistake of them: write 84.0.2.10 for the address",
		"64.0.0.0-192.0.0.0": "<nil>",
	} {
		if _, _, err := Read(strings.NewReader(line), "list", 0); fmt.Sprint(err) != want {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

// TestCompressedList reads a list that is compressed with gzip.
func TestCompressedList(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	fmt.Fprintln(w, "198.51.100.0\t198.51.100.255\t24\t100")
	w.Close()
	path := filepath.Join(t.TempDir(), "list.gz")
	if err := os.WriteFile(path, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if set, n, err := ReadFile(path, 0); err != nil || n != 1 || !set.Contains(netip.MustParseAddr("198.51.100.200")) {
		t.Errorf("%d entries, %v", n, err)
	}
}
