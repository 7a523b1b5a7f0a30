// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// as connects to an address as another user. If this process may not become that user, it connects as its own user.
func as(t *testing.T, uid int, address string) *net.TCPConn {
	t.Helper()
	made := make(chan net.Conn)
	go func() {
		runtime.LockOSThread() // the thread keeps the user, and is never unlocked, so it ends with this function
		unix.Setfsuid(uid)
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Error(err)
		}
		made <- c
	}()
	c := <-made
	if c == nil {
		t.FailNow()
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func ends(c net.Conn) (local, remote netip.AddrPort) {
	return c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
}

// TestOwner connects as several users, over both families, and to a socket for both families. The owner must be unknown if the end is
// closed, if it never existed, or if its port only listens.
func TestOwner(t *testing.T) {
	t.Run("itself", func(t *testing.T) { owners(t, os.Geteuid()) })
	t.Run("others", func(t *testing.T) {
		testutil.RequireRoot(t)
		owners(t, 65534, 12345)
	})
}

func owners(t *testing.T, users ...int) {
	for listen, host := range map[string]string{"127.0.0.1:0": "127.0.0.1", "[::1]:0": "::1", "[::]:0": "127.0.0.1"} {
		l, err := net.Listen("tcp", listen)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		for _, want := range users {
			client := as(t, want, net.JoinHostPort(host, port))
			server, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			local, remote := ends(server)
			if uid, known := Owner(remote, local); !known || int(uid) != want {
				t.Errorf("%s: the client is user %d, %v, want %d", listen, uid, known, want)
			}
			if uid, known := Owner(local, remote); !known || int(uid) != os.Geteuid() {
				t.Errorf("%s: the server is user %d, %v", listen, uid, known)
			}
			other := netip.AddrPortFrom(remote.Addr(), remote.Port()^1)
			for _, end := range []netip.AddrPort{other, netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), 1)} {
				if uid, known := Owner(local, end); known {
					t.Errorf("%s: %s, which is not connected, is user %d", listen, end, uid)
				}
			}
			client.Close() // the server's end is open, so the kernel keeps the client's half
			if uid, known := Owner(remote, local); known {
				t.Errorf("%s: a client that has closed is user %d", listen, uid)
			}
		}
	}
}
