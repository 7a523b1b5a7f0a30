package addrs

import (
	"fmt"
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
