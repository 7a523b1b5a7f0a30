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

// Families of addresses, as the kernel numbers them.
var families = []uint8{unix.AF_INET, unix.AF_INET6}

// Learn stores the connections to protected ports that the kernel has: those of sockets of this network namespace, and
// for services behind this host those that conntrack has.
func (f *Table) Learn(protects func(port uint16, behind bool) bool) error {
	_, err := f.Preload(func(port uint16) bool { return protects(port, false) })
	_, trackedErr := f.PreloadTracked(func(port uint16) bool { return protects(port, true) })
	return errors.Join(err, trackedErr)
}

// Open lists the TCP connections that the kernel has open: those of sockets of this network namespace, and those that conntrack has. The
// server is the end that this host has, or that was asked.
func Open() ([]Connection, error) {
	all := func(uint16) bool { return true }
	sockets, err := ofSockets(all)
	tracked, trackedErr := ofConntrack(all)
	return slices.Concat(sockets.open, sockets.closing, tracked.open, tracked.closing), errors.Join(err, trackedErr)
}

// Preload notes the connections that sockets of this network namespace have on ports, and returns how many.
func (f *Table) Preload(protects func(port uint16) bool) (int, error) {
	known, err := ofSockets(protects)
	return f.addAll(known), err
}

// PreloadTracked notes the connections to ports that the kernel tracks, and returns how many: those of services behind
// this host.
func (f *Table) PreloadTracked(protects func(port uint16) bool) (int, error) {
	known, err := ofConntrack(protects)
	return f.addAll(known), err
}

// ofSockets lists the connections that sockets of this network namespace have on ports.
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

// eachSocket calls do with the sockets of this network namespace that a question of inet_diag gives, of both families.
func eachSocket(ask func(family uint8) ([]*netlink.Socket, error), do func(*netlink.Socket)) error {
	for _, family := range families {
		sockets, err := ask(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // what it missed can be asked for
			return fmt.Errorf("connections of this host: %w", err)
		}
		for _, s := range sockets {
			do(s)
		}
	}
	return nil
}

// stateOfSocket is the flow state for a socket's state: none until its peer has proved its address. TIME-WAIT counts as
// closing: a new SYN for it is left to the kernel.
func stateOfSocket(state uint8) FlowState {
	switch state {
	case netlink.TCP_SYN_SENT, netlink.TCP_SYN_RECV, netlink.TCP_NEW_SYN_REC, netlink.TCP_CLOSE, netlink.TCP_LISTEN:
		return None
	case netlink.TCP_ESTABLISHED:
		return Lasting
	}
	return Closing
}

// ofConntrack lists the connections to ports that the kernel tracks.
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

// eachTracked calls do with the flows that the kernel tracks, of both families. It is no error when the kernel tracks none.
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

// stateOfTracked is the flow state for an entry of conntrack whose handshake is over and which has not ended, none for
// any other: enum tcp_conntrack of linux/netfilter/nf_conntrack_tcp.h.
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

// addrPort converts an address. For an IPv4 connection of an IPv6 socket the kernel gives it in mapped form.
func addrPort(ip net.IP, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}

// preload has connections that a program did not see begin.
type preload struct{ open, closing []Connection }

// note adds a connection, unless its state is none that the flow table has.
func (p *preload) note(c Connection, state FlowState) {
	switch state {
	case Lasting:
		p.open = append(p.open, c)
	case Closing:
		p.closing = append(p.closing, c)
	}
}

// addAll notes connections in the table, and returns how many.
func (f *Table) addAll(p preload) int {
	f.Add(p.open, Lasting)
	f.Add(p.closing, Closing)
	return len(p.open) + len(p.closing)
}
