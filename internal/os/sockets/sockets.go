// This file lists the sockets that serve in the thread's network namespace, and the programs that have them, and says whose a
// connection is. It asks the kernel by sock_diag, and /proc.

package sockets

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Socket is one that serves TCP or UDP.
type Socket struct {
	Service
	Addr    netip.Addr // :: and 0.0.0.0 for all of the host
	Queued  uint32     // TCP: connections that wait to be accepted
	Backlog uint32     // TCP: how many may wait
	inode   uint32
}

// Same reports whether two looks saw the same socket.
func (s Socket) Same(other Socket) bool {
	return s.Service == other.Service && s.Addr == other.Addr && s.inode == other.inode
}

// Serving lists the sockets that listen for connections of TCP, and those of UDP that are not connected, by protocol and port.
// The kernel is not asked for connections, however many there are. It takes no rights.
func Serving() (list []Socket, err error) {
	for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		messages, err := Dump(proto, 0)
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			list = append(list, decode(proto, m))
		}
	}
	slices.SortFunc(list, func(a, b Socket) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port), a.Addr.Compare(b.Addr))
	})
	return list, nil
}

// decode reads struct inet_diag_msg. Ports and addresses are in network byte order, the rest in that of the host.
func decode(proto uint8, message []byte) Socket {
	addr := netip.AddrFrom4([4]byte(message[8:]))
	if message[0] == unix.AF_INET6 {
		addr = netip.AddrFrom16([16]byte(message[8:]))
	}
	return Socket{
		Service: Service{proto, binary.BigEndian.Uint16(message[4:])}, Addr: addr,
		Queued: binary.NativeEndian.Uint32(message[56:]), Backlog: binary.NativeEndian.Uint32(message[60:]),
		inode: binary.NativeEndian.Uint32(message[68:]),
	}
}
