package traffic

import (
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/host/facts"
)

// TestDHCPBesideFlood has answers of DHCP servers come beside a flood of forged ones, whose sources are random: from the gateway,
// and from the server of a lease that the host has. The answer of a server that the host does not know comes when no flood does.
func TestDHCPBesideFlood(t *testing.T) {
	inScene(t, func(s *scene) {
		var socket net.PacketConn
		err := s.server.Do(func() (err error) {
			socket, err = net.ListenPacket("udp4", "0.0.0.0:68")
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
				for try := 0; try < 10 && (!came || limited < 1000); try++ { // a busy machine loses some of it
					s.send(2000, append(flood[:999:999], answer...))
					came = received(socket, server) || came
					limited = s.counted("essential:dhcp:limited")
				}
				if limited < 1000 {
					t.Errorf("%s: only %d packets of the flood were limited", target, limited)
				}
				if !came {
					t.Errorf("%s: beside a flood no answer of %s came", target, server)
				}
			}
			time.Sleep(200 * time.Millisecond) // the limit of all others has been used up
			came := false
			for try := 0; try < 5 && !came; try++ { // a busy machine may take longer than is waited for
				s.send(1, s.frames("udp 203.0.113.7:67 > 10.0.0.2:68 payload=0x00"))
				came = received(socket, "203.0.113.7")
			}
			if !came {
				t.Errorf("%s: the answer of a server that the host does not know did not come", target)
			}
		}
	})
}

// received reports whether a socket has got a packet of a source.
func received(socket net.PacketConn, source string) (is bool) {
	buffer := make([]byte, 100)
	for {
		socket.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		_, from, err := socket.ReadFrom(buffer)
		if err != nil {
			return is
		}
		is = is || from.(*net.UDPAddr).IP.String() == source
	}
}
