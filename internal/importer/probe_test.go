// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// oneOfEach removes packets that belong to the same connection as an earlier packet. Conntrack's state for such a packet depends on
// whether the kernel has already answered the first one.
func oneOfEach(list []probe) []probe {
	type connection struct {
		ends  [2]netip.AddrPort
		proto uint32
	}
	seen := map[connection]bool{}
	return slices.DeleteFunc(list, func(p probe) bool {
		pkt := p.spec.Packet()
		c := connection{proto: pkt.Value[packet.Proto], ends: [2]netip.AddrPort{
			netip.AddrPortFrom(pkt.Src, uint16(pkt.Value[packet.SPort])), netip.AddrPortFrom(pkt.Dst, uint16(pkt.Value[packet.DPort]))}}
		if c.ends[1].Compare(c.ends[0]) < 0 {
			c.ends[0], c.ends[1] = c.ends[1], c.ends[0]
		}
		again := seen[c] && c.proto == unix.IPPROTO_TCP
		seen[c] = true
		return again
	})
}
