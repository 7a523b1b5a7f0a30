// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

// TestOpen lists a connection of this host while it is open. It must not list listening sockets.
func TestOpen(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		server := netip.MustParseAddrPort(l.Addr().String())
		about := func() (list []Connection) {
			all, err := Open()
			if err != nil {
				t.Fatal(err)
			}
			return slices.DeleteFunc(all, func(c Connection) bool { return c.Server != server })
		}
		if got := about(); len(got) != 0 {
			t.Errorf("%s listens: %v", address, got)
		}
		client, err := net.Dial("tcp", server.String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if got, want := about(), (Connection{netip.MustParseAddrPort(client.LocalAddr().String()), server}); !slices.Contains(got, want) {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
}
