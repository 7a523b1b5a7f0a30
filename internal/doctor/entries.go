// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
)

// maxSample is the number of table entries that are read. The table lists its entries in the order of a keyed hash, so the first ones are a random
// sample. With 65,536 entries the error of a share is less than half a percent.
const maxSample = 1 << 16

// flow has the addresses and the port of a connection's first packet.
type flow struct {
	proto    uint8
	src, dst netip.Addr
	port     uint16 // the destination port
}

// sampleFlows reads at most maxSample entries of the connection tracking table.
func sampleFlows(ctx context.Context) (flows []flow, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err = dump(ctx, unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET, (&nl.Nfgenmsg{}).Serialize(),
		func(message []byte) bool {
			if entry, err := nftable.ReadAnswer(message); err == nil {
				flows = append(flows, newFlow(entry.Attributes))
			}
			return len(flows) < maxSample
		})
	return flows, err
}

func newFlow(entry nftable.Attributes) (f flow) {
	tuple, _ := entry.Nested(nl.CTA_TUPLE_ORIG)
	ip, _ := tuple.Nested(nl.CTA_TUPLE_IP)
	l4, _ := tuple.Nested(nl.CTA_TUPLE_PROTO)
	for kind, to := range map[uint16]*netip.Addr{nl.CTA_IP_V4_SRC: &f.src, nl.CTA_IP_V6_SRC: &f.src, nl.CTA_IP_V4_DST: &f.dst, nl.CTA_IP_V6_DST: &f.dst} {
		if addr, ok := netip.AddrFromSlice(ip.Take(kind)); ok {
			*to = addr
		}
	}
	f.proto, f.port = uint8(l4.Number(nl.CTA_PROTO_NUM)), uint16(l4.Number(nl.CTA_PROTO_DST_PORT))
	return f
}
