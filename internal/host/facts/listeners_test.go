// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestListeners tests an internal function. A service is protected in another way if its socket accepts MPTCP. On a kernel with all features, only
// this function shows whether a socket does.
func TestListeners(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	want := map[uint16]bool{}
	for _, multipath := range []bool{false, true} {
		for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
			var c net.ListenConfig
			c.SetMultipathTCP(multipath)
			l, err := c.Listen(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			client, err := net.Dial("tcp", l.Addr().String()) // a connected socket is not a listener
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			want[uint16(l.Addr().(*net.TCPAddr).Port)] = multipath
		}
	}
	got, err := listeners()
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Errorf("%d sockets listen, want %d: %v", len(got), len(want), got)
	}
	for _, l := range got {
		if mptcp, ok := want[l.Port]; !ok || l.MPTCP != mptcp {
			t.Errorf("port %d: MPTCP %t, want %t of %v", l.Port, l.MPTCP, mptcp, want)
		}
	}
}
