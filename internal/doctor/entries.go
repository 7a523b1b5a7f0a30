package doctor

import (
	"context"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// maxSample is how many entries of the table are looked at. The table lists them by a keyed hash, so the first ones are
// a fair sample: of 65,536 a share is off by less than half a percent.
const maxSample = 1 << 16

// flow is the direction in which a connection began.
type flow struct {
	proto    uint8
	src, dst netip.Addr
	port     uint16 // destination
}

// sampleFlows reads at most maxSample entries of the connection tracking table.
func sampleFlows(ctx context.Context) (flows []flow, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err = dump(ctx, unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET,
		netfilterHead(unix.AF_UNSPEC), func(message []byte) bool {
			if _, rest, err := afterHead(message); err == nil {
				flows = append(flows, newFlow(attribute(rest, nl.CTA_TUPLE_ORIG)))
			}
			return len(flows) < maxSample
		})
	return flows, err
}

func newFlow(tuple []byte) (f flow) {
	for kind, value := range attributes(attribute(tuple, nl.CTA_TUPLE_IP)) {
		addr, ok := netip.AddrFromSlice(value)
		switch {
		case !ok:
		case kind == nl.CTA_IP_V4_SRC || kind == nl.CTA_IP_V6_SRC:
			f.src = addr
		case kind == nl.CTA_IP_V4_DST || kind == nl.CTA_IP_V6_DST:
			f.dst = addr
		}
	}
	for kind, value := range attributes(attribute(tuple, nl.CTA_TUPLE_PROTO)) {
		switch {
		case kind == nl.CTA_PROTO_NUM && len(value) == 1:
			f.proto = value[0]
		case kind == nl.CTA_PROTO_DST_PORT && len(value) == 2:
			f.port = binary.BigEndian.Uint16(value)
		}
	}
	return f
}

// ownAddresses lists the addresses of this host.
func ownAddresses() (map[netip.Addr]bool, error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	own := make(map[netip.Addr]bool, len(list))
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			own[addr.Unmap()] = true
		}
	}
	return own, nil
}
