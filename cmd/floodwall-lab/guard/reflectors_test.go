// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

const (
	reflectorPolicy = "default: pass\nchecks: {profile: off, reflector-source: on}\n"
	sourcePortAt    = 14 + 20 // offset in an IPv4 frame
)

// answering are ports of frequently used UDP services that are no reflectors: DNS, HTTP, Kerberos, NTP, HTTP/3, IKE, DNS over QUIC, OpenVPN, L2TP,
// RADIUS, NAT traversal and relays, IKE behind NAT, SIP, WireGuard.
var answering = []uint16{53, 80, 88, 123, 443, 500, 784, 853, 1194, 1701, 1812, 1813, 3478, 3479, 4500, 5060, 5061, 5349, 51820}

// TestReflectors sends packets from all ports. Those from reflectors must be dropped, and no others. Few may cost more than most do, and none from
// the port of a frequently used service.
func TestReflectors(t *testing.T) {
	testutil.RequireRoot(t)
	inLab(t, func(g *guard) error {
		return policy(reflectorPolicy)(context.Background(), g, func(p *ebpf.Program) error {
			m, err := OpenProgram(p)
			if err != nil {
				return err
			}
			defer m.Close()
			spec, err := packet.Parse(udp4)
			if err != nil {
				return err
			}
			frame, usual, dear := spec.Frame(), 0, 0
			for port := 1<<16 - 1; port >= 0; port-- { // the first port is no reflector, and shares no bit with one
				binary.BigEndian.PutUint16(frame[sourcePortAt:], uint16(port))
				r, err := m.Run(frame)
				if err != nil {
					return err
				}
				if usual == 0 {
					usual = r.Instructions
				}
				listed := slices.Contains(packet.ReflectorPorts, uint16(port))
				if got := r.Action == rig.XDPDrop; got != listed {
					t.Errorf("from port %d: dropped %t, want %t", port, got, listed)
				}
				if r.Instructions > usual && !listed {
					dear++
				}
				if r.Instructions > usual && slices.Contains(answering, uint16(port)) {
					t.Errorf("from port %d: %d instructions, want %d as from most ports", port, r.Instructions, usual)
				}
			}
			if most := 1 << 16 / 50; dear > most {
				t.Errorf("%d ports that are no reflectors cost more than others, want %d at most", dear, most)
			}
			return nil
		})
	})
}
