// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestDHCPBesideFlood sends answers of DHCP servers during a flood of forged answers from random sources. Two answers must arrive during the flood:
// that of the gateway, and that of the server from which the host has a lease. The answer of a server that the host does not know must arrive when
// there is no flood.
func TestDHCPBesideFlood(t *testing.T) {
	inScene(t, func(s *scene) {
		var socket *net.UDPConn
		err := s.server.Do(func() (err error) {
			socket, err = net.ListenUDP("udp4", &net.UDPAddr{Port: 68})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		lease := filepath.Join(t.TempDir(), "3")
		if err := os.WriteFile(lease, []byte("ADDRESS=10.0.0.2\nSERVER_ADDRESS=198.51.100.67\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		defer func(old []string) { facts.System.Leases = old }(facts.System.Leases)
		facts.System.Leases = []string{lease}
		flood := s.frames(lines("udp %s:67 > 10.0.0.2:68 payload=0x00", sources(rand.New(rand.NewPCG(7, 8)), false, 999))...)
		for _, target := range targets {
			s.apply(target, essentialPolicy)
			for _, server := range []string{"10.0.0.1", "198.51.100.67"} {
				answer := s.frames("udp " + server + ":67 > 10.0.0.2:68 payload=0x00")
				came := false
				limited := uint64(0)
				for try := 0; try < 10 && (!came || limited < 1000); try++ { // a busy machine loses some of the packets
					s.send(2000, append(flood[:999:999], answer...))
					came = received(t, socket, server) || came
					limited = s.counted("essential:dhcp:limited")
				}
				if limited < 1000 {
					t.Errorf("%s: only %d packets of the flood were limited", target, limited)
				}
				if !came {
					t.Errorf("%s: beside a flood no answer of %s came", target, server)
				}
			}
			time.Sleep(200 * time.Millisecond) // the flood has used up the limit for all other servers
			came := false
			for try := 0; try < 100 && !came; try++ { // a busy machine may take longer than the deadline
				s.send(1, s.frames("udp 203.0.113.7:67 > 10.0.0.2:68 payload=0x00"))
				came = received(t, socket, "203.0.113.7")
			}
			if !came {
				t.Errorf("%s: the answer of a server that the host does not know did not come", target)
			}
		}
	})
}

// received reports whether a socket has received a packet from a source.
func received(t testing.TB, socket *net.UDPConn, source string) (is bool) {
	t.Helper()
	for {
		_, from, ok := testutil.Receive(t, socket, 200*time.Millisecond)
		if !ok {
			return is
		}
		is = is || from.Addr().Unmap().String() == source
	}
}
