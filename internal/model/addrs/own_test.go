// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
)

// TestShowOwn writes several lists of own addresses to the same memory, one after the other. The memory must have none of
// the earlier addresses.
func TestShowOwn(t *testing.T) {
	m := NewDynamicMemory(10)
	m.Own = make([]byte, OwnBytes)
	if err := m.Format(10); err != nil {
		t.Fatal(err)
	}
	d := openDynamic(t, m)
	const six = "20010db8000000000000000000000001"
	for _, row := range []struct{ list, want string }{
		{"", ""},
		{"127.0.0.1 192.0.2.1 ::1 2001:db8::1", "c0000201" + zeros(12) + six},
		{"10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5", "0a0000010a0000020a0000030a000004"},
		{"2001:db8::1 2001:db8::1 fe80::1 2001:db8::2", zeros(16) + six + six + "fe800000000000000000000000000001"},
		{"192.0.2.9", "c0000209"},
	} {
		list := []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
		for _, a := range strings.Fields(row.list) {
			a := netip.MustParseAddr(a)
			list = append(list, netip.PrefixFrom(a, a.BitLen()))
		}
		d.ShowOwn(list)
		want := row.want + zeros(OwnBytes-len(row.want)/2)
		if got := hex.EncodeToString(m.Own); got != want {
			t.Errorf("%s:\n got %s\nwant %s", row.list, got, want)
		}
	}
	m.Own = nil
	openDynamic(t, m).ShowOwn([]netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}) // memory of an earlier format
}
