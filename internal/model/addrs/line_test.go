// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

func TestParseLine(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"192.0.2.1", "[192.0.2.1/32]"},
		{"  192.0.2.0/24\tx y", "[192.0.2.0/24]"},
		{"2001:db8::/32 # documentation", "[2001:db8::/32]"},
		{"192.0.2.4-192.0.2.6", "[192.0.2.4/31 192.0.2.6/32]"},
		{"192.0.2.4 - 192.0.2.6 why", "[192.0.2.4/31 192.0.2.6/32]"},
		{"2001:db8::1-2001:db8::1", "[2001:db8::1/128]"},
		{"::ffff:192.0.2.1", "[192.0.2.1/32]"},
		{"::ffff:192.0.2.0/120", "[192.0.2.0/24]"},
		{"0.0.0.0-255.255.255.255", "[0.0.0.0/0]"},
		{"", "[]"},
		{" # nothing", "[]"},
		{"; nothing", "[]"},
		{"example.org", `not an address, prefix or range: "example.org"`},
		{"192.0.2.1/24", "192.0.2.1/24 has host bits set: write 192.0.2.0/24 for the network or 192.0.2.1 for the address"},
		{"192.0.2.6-192.0.2.4", `range "192.0.2.6-192.0.2.4" does not go from a lower to a higher address of one family`},
		{"192.0.2.6-2001:db8::1", `range "192.0.2.6-2001:db8::1" does not go from a lower to a higher address of one family`},
		{"fe80::1%eth0", `address "fe80::1%eth0" has a zone, leave it out`},
		{"Some, org #1; why: 192.0.2.4-192.0.2.5", "[192.0.2.4/31]"},
		{"a:b:192.0.2.4 - 192.0.2.5", "[192.0.2.4/31]"},
		{"4 corners:2001:db8::4-2001:db8::5", "[2001:db8::4/127]"},
		{"192.0.2.9 # was:192.0.2.4-192.0.2.5", "[192.0.2.9/32]"},
		{"# a:192.0.2.4-192.0.2.5", "[]"},
		{"org:192.0.2.5-192.0.2.4", `not an address, prefix or range: "org:192.0.2.5-192.0.2.4"`},
		{"192.0.2.128\t192.0.2.255\t25\t7", "[192.0.2.128/25]"},
		{"198.51.100.0 198.51.100.255", "[198.51.100.0/24]"},
		{"198.51.100.0,198.51.100.255,12", "[198.51.100.0/24]"},
		{"203.0.113.0 255.255.255.192 why", "[203.0.113.0/26]"},
		{"203.0.113.0 0.0.0.63", "[203.0.113.0/26]"},
		{"203.0.113.7 255.255.255.255", "[203.0.113.7/32]"},
		{"203.0.113.64 /26", "[203.0.113.64/26]"},
		{"203.0.113.0;24", "[203.0.113.0/24]"},
		{"203.0.113.0,24", "[203.0.113.0/24]"},
		{"2001:db8:bad:: 48", "[2001:db8:bad::/48]"},
		{"2001:db8:: 2001:db8::ffff", "[2001:db8::/112]"},
		{"203.0.113.7\t9", "[203.0.113.7/32]"},                            // a score
		{"203.0.113.0 24 attacks", "[203.0.113.0/32]"},                    // the number is no prefix length
		{"203.0.113.0 ; 24", "[203.0.113.0/32]"},                          // a comment
		{"203.0.113.0 2026-11-28 01:02", "[203.0.113.0/32]"},              // a date
		{"001.002.003.000 - 001.002.003.255 , 000 , org", "[1.2.3.0/24]"}, // eMule's
		{"001.002.003.000 - 001.002.003.255 , 200 , org", "[]"},           // level 200: not blocked
		{"192.0.2.1 198.51.100.7", `not an address, prefix or range: "192.0.2.1 198.51.100.7"`},
		{"192.0.2.1,192.0.2.7,192.0.2.9", `not an address, prefix or range: "192.0.2.1 192.0.2.7 192.0.2.9"`},
		{"203.0.113.0 255.0.255.0", `not an address, prefix or range: "203.0.113.0 255.0.255.0"`},
		{"203.0.113.7 /24", "203.0.113.7/24 has host bits set: write 203.0.113.0/24 for the network or 203.0.113.7 for the address"},
		{"192.0.2.256", `not an address, prefix or range: "192.0.2.256"`},
	} {
		prefixes, err := ParseLine([]byte(c.line))
		got := fmt.Sprint(prefixes)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q: got %s, want %s", c.line, got, c.want)
		}
	}
}

// TestNamedRanges reads a list file in P2P form among lines in other forms. The names have characters that start a comment in
// other forms.
func TestNamedRanges(t *testing.T) {
	const text = "# a list:192.0.2.0-192.0.2.9\nOne, Inc. (a:b) #1:198.51.100.0-198.51.100.255\nTwo;:203.0.113.7-203.0.113.7\n2001:db8::/64\n192.0.2.77 # x:192.0.2.1-192.0.2.2\n"
	file := filepath.Join(t.TempDir(), "list.p2p")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set, entries, err := ReadFile(file, 0)
	if err != nil || entries != 4 {
		t.Fatalf("%d entries, %v", entries, err)
	}
	for a, want := range map[string]bool{"198.51.100.200": true, "203.0.113.7": true, "203.0.113.8": false, "2001:db8::1": true,
		"192.0.2.77": true, "192.0.2.1": false} {
		if set.Contains(netip.MustParseAddr(a)) != want {
			t.Errorf("%s: want %v", a, want)
		}
	}
}
