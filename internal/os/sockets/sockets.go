// SPDX-License-Identifier: Apache-2.0

// This file lists the serving sockets in the thread's network namespace. It finds the programs that have them open, and the owners of connections. It
// uses sock_diag and /proc.

package sockets

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Socket is a listening TCP socket, or a UDP socket that is not connected.
type Socket struct {
	Service
	Addr    netip.Addr // :: or 0.0.0.0 if it is bound to all addresses of the host
	Queued  uint32     // TCP: connections that wait to be accepted
	Backlog uint32     // TCP: the limit of Queued
	inode   uint32
}

// Same reports whether s and other are readings of the same socket at different times.
func (s Socket) Same(other Socket) bool {
	return s.Service == other.Service && s.Addr == other.Addr && s.inode == other.inode
}

// Serving returns the listening TCP sockets and the unconnected UDP sockets, sorted by protocol and port. It does not ask the kernel for connections,
// so a large number of connections does not slow it down. It needs no privileges.
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

// decode converts a struct inet_diag_msg. Ports and addresses are in network byte order. All other fields are in the host's byte order.
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
