package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A program that begins to protect services knows none of their connections. The kernel does: Preload asks it at once for
// all, so that none has to be asked for by a packet, of which there is a limit.

// Families of addresses, as the kernel numbers them.
var families = []uint8{unix.AF_INET, unix.AF_INET6}

// Preload notes the connections that sockets of this network namespace have on ports, and returns how many.
func (f *Flows) Preload(protects func(port uint16) bool) (int, error) {
	var found []Connection
	for _, family := range families {
		sockets, err := netlink.SocketDiagTCP(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // what it missed can be asked for
			return 0, fmt.Errorf("connections of this host: %w", err)
		}
		for _, s := range sockets {
			if isOpen(s.State) && protects(s.ID.SourcePort) {
				found = append(found, Connection{
					Client: addrPort(s.ID.Destination, s.ID.DestinationPort), Server: addrPort(s.ID.Source, s.ID.SourcePort),
				})
			}
		}
	}
	f.Add(found)
	return len(found), nil
}

// isOpen reports whether a socket's peer has proved its address. TIME-WAIT is among them: a new SYN for it is for the
// kernel.
func isOpen(state uint8) bool {
	switch state {
	case netlink.TCP_SYN_SENT, netlink.TCP_SYN_RECV, netlink.TCP_NEW_SYN_REC, netlink.TCP_CLOSE, netlink.TCP_LISTEN:
		return false
	}
	return true
}

// PreloadTracked notes the connections to ports that the kernel tracks, and returns how many: those of services behind
// this host. It is no error when the kernel tracks none.
func (f *Flows) PreloadTracked(protects func(port uint16) bool) (int, error) {
	count, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	if err != nil || string(bytes.TrimSpace(count)) == "0" {
		return 0, nil
	}
	var found []Connection
	for _, family := range families {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(family))
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return 0, fmt.Errorf("tracked connections: %w", err)
		}
		for _, flow := range flows {
			from := flow.Forward
			if isTrackedOpen(flow) && protects(from.DstPort) {
				found = append(found, Connection{addrPort(from.SrcIP, from.SrcPort), addrPort(from.DstIP, from.DstPort)})
			}
		}
	}
	f.Add(found)
	return len(found), nil
}

// isTrackedOpen reports whether a connection is one of TCP whose handshake is over and which has not ended: enum
// tcp_conntrack of linux/netfilter/nf_conntrack_tcp.h.
func isTrackedOpen(flow *netlink.ConntrackFlow) bool {
	const established, lastACK = 3, 6
	tcp, ok := flow.ProtoInfo.(*netlink.ProtoInfoTCP)
	return ok && tcp.State >= established && tcp.State <= lastACK
}

// addrPort is an address as the kernel hands it out: of an IPv4 connection of an IPv6 socket it is in mapped form.
func addrPort(ip net.IP, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}
