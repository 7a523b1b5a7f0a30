// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// families are the kernel's numbers of the address families IPv4 and IPv6.
var families = []uint8{unix.AF_INET, unix.AF_INET6}

// Learn adds the kernel's connections to protected ports. It reads the sockets of this network namespace and, for services behind this host,
// conntrack.
func (f *Table) Learn(protects func(port uint16, behind bool) bool) error {
	_, err := f.Preload(func(port uint16) bool { return protects(port, false) })
	_, trackedErr := f.PreloadTracked(func(port uint16) bool { return protects(port, true) })
	return errors.Join(err, trackedErr)
}

// Open lists the TCP connections that are open in the kernel: the connections of sockets in this network namespace, and of conntrack. For a socket
// the server is this host. For conntrack the server is the side that did not open the connection.
func Open() ([]Connection, error) {
	all := func(uint16) bool { return true }
	sockets, err := ofSockets(all)
	tracked, trackedErr := ofConntrack(all)
	return slices.Concat(sockets.open, sockets.closing, tracked.open, tracked.closing), errors.Join(err, trackedErr)
}

// Preload adds the connections of sockets in this network namespace on protected ports. It returns their number.
func (f *Table) Preload(protects func(port uint16) bool) (int, error) {
	known, err := ofSockets(protects)
	return f.addAll(known), err
}

// PreloadTracked adds the connections of conntrack to protected ports, which belong to services behind this host. It returns their number.
func (f *Table) PreloadTracked(protects func(port uint16) bool) (int, error) {
	known, err := ofConntrack(protects)
	return f.addAll(known), err
}

// ofSockets lists the connections of sockets in this network namespace on protected ports.
func ofSockets(protects func(port uint16) bool) (known preload, err error) {
	err = eachSocket(netlink.SocketDiagTCP, func(s *netlink.Socket) {
		c := Connection{
			Client: addrPort(s.ID.Destination, s.ID.DestinationPort), Server: addrPort(s.ID.Source, s.ID.SourcePort),
		}
		if protects(s.ID.SourcePort) {
			known.note(c, stateOfSocket(s.State))
		}
	})
	if err != nil {
		return preload{}, err
	}
	return known, nil
}

// eachSocket calls ask for both address families (inet_diag). It calls do with each returned socket of this network namespace.
func eachSocket(ask func(family uint8) ([]*netlink.Socket, error), do func(*netlink.Socket)) error {
	for _, family := range families {
		sockets, err := ask(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // the connections of missed sockets can be looked up later
			return fmt.Errorf("connections of this host: %w", err)
		}
		for _, s := range sockets {
			do(s)
		}
	}
	return nil
}

// stateOfSocket returns the flow state for a socket's state. It returns None until the peer has proved its address. It returns Closing for TIME-WAIT,
// in which the kernel handles a new SYN.
func stateOfSocket(state uint8) FlowState {
	switch state {
	case netlink.TCP_SYN_SENT, netlink.TCP_SYN_RECV, netlink.TCP_NEW_SYN_REC, netlink.TCP_CLOSE, netlink.TCP_LISTEN:
		return None
	case netlink.TCP_ESTABLISHED:
		return Lasting
	}
	return Closing
}

// ofConntrack lists the connections of conntrack to protected ports.
func ofConntrack(protects func(port uint16) bool) (known preload, err error) {
	err = eachTracked(func(flow *netlink.ConntrackFlow) {
		from := flow.Forward
		c := Connection{addrPort(from.SrcIP, from.SrcPort), addrPort(from.DstIP, from.DstPort)}
		if protects(from.DstPort) {
			known.note(c, stateOfTracked(flow))
		}
	})
	if err != nil {
		return preload{}, err
	}
	return known, nil
}

// eachTracked calls do with each flow of conntrack, of both address families. If conntrack has no flows, it returns nil.
func eachTracked(do func(*netlink.ConntrackFlow)) error {
	if !tracks() {
		return nil
	}
	for _, family := range families {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(family))
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("tracked connections: %w", err)
		}
		for _, flow := range flows {
			do(flow)
		}
	}
	return nil
}

// tracks reports whether conntrack has any entry.
func tracks() bool {
	count, err := trackedNumber("count")
	return err == nil && count > 0
}

// trackedEstablished is TCP_CONNTRACK_ESTABLISHED of linux/netfilter/nf_conntrack_tcp.h.
const trackedEstablished = 3

// stateOfTracked returns the flow state for an entry of conntrack. It returns None if the handshake is incomplete or the connection has ended. The
// values are those of enum tcp_conntrack in linux/netfilter/nf_conntrack_tcp.h.
func stateOfTracked(flow *netlink.ConntrackFlow) FlowState {
	const established, lastACK = trackedEstablished, 6
	tcp, ok := flow.ProtoInfo.(*netlink.ProtoInfoTCP)
	switch {
	case !ok || tcp.State < established || tcp.State > lastACK:
		return None
	case tcp.State == established:
		return Lasting
	}
	return Closing
}

// addrPort converts an address and a port. For an IPv4 connection of an IPv6 socket the kernel returns a mapped address, which addrPort unmaps.
func addrPort(ip net.IP, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}

// preload has connections whose start the program did not see.
type preload struct{ open, closing []Connection }

// note adds a connection to the list for its state. It ignores a connection with the state None.
func (p *preload) note(c Connection, state FlowState) {
	switch state {
	case Lasting:
		p.open = append(p.open, c)
	case Closing:
		p.closing = append(p.closing, c)
	}
}

// addAll adds connections to the table, and returns their number.
func (f *Table) addAll(p preload) int {
	f.Add(p.open, Lasting)
	f.Add(p.closing, Closing)
	return len(p.open) + len(p.closing)
}
