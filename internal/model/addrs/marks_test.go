// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestMarks inserts prefixes into two sets and checks which marks are set. The mark of an address depends on its last two
// bytes.
func TestMarks(t *testing.T) {
	for _, row := range []struct{ first, second, want string }{
		{"", "", ""},
		{"192.0.2.1 198.51.18.1", "192.0.18.255", "16:1 17:1 4081:2"},
		{"192.0.2.1", "10.9.2.1 2001:db8::201 ::ffff", "16:3 4095:2"},
	} {
		m := marked(t, row.first, row.second)
		var got []string
		for at, sets := range m.Marks {
			if sets != 0 {
				got = append(got, fmt.Sprintf("%d:%d", at, sets))
			}
		}
		if got := strings.Join(got, " "); got != row.want {
			t.Errorf("%s, and %s: marks %s, want %s", row.first, row.second, got, row.want)
		}
	}
	for _, prefix := range []string{"192.0.2.0/31", "::/0"} {
		for at, sets := range marked(t, "192.0.2.1", prefix).Marks {
			if sets&2 == 0 {
				t.Fatalf("%s: mark %d is %d, want bit 1 in all", prefix, at, sets)
			}
		}
	}
}

// marked returns the memory of two sets that have these prefixes and addresses.
func marked(t *testing.T, lists ...string) DynamicMemory {
	t.Helper()
	m := NewDynamicMemory(10, 10)
	m.Marks = make([]byte, MarkBytes)
	if err := m.Format(10, 10); err != nil {
		t.Fatal(err)
	}
	d := openDynamic(t, m)
	for i, list := range lists {
		for _, text := range strings.Fields(list) {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				a := netip.MustParseAddr(text)
				p = netip.PrefixFrom(a, a.BitLen())
			}
			if err := d.Sets[i].Insert(Entry{Prefix: p}, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	return m
}
