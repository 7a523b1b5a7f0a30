// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"encoding/binary"
	"net/netip"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// exact is struct inet_diag_req_v2 for a single TCP connection.
type exact struct {
	request
	local, remote netip.AddrPort
}

func (e *exact) Serialize() []byte {
	b := e.request.Serialize()
	binary.BigEndian.PutUint16(b[8:], e.local.Port())
	binary.BigEndian.PutUint16(b[10:], e.remote.Port())
	copy(b[12:28], e.local.Addr().AsSlice())
	copy(b[28:44], e.remote.Addr().AsSlice())
	for i := 48; i < len(b); i++ {
		b[i] = 0xff // any cookie matches: INET_DIAG_NOCOOKIE
	}
	return b
}

// Owner returns the user ID of the owner of the local socket of a TCP connection. known is false if the socket is not in the thread's network
// namespace, or if the program has closed the socket. The kernel looks up only this connection. No privileges are needed.
func Owner(local, remote netip.AddrPort) (uid uint32, known bool) {
	m := connection(local, remote)
	if m == nil {
		return 0, false
	}
	return binary.NativeEndian.Uint32(m[64:]), true
}

// Holder returns a process that has the local socket of a TCP connection open, 0 if it may not be inspected. known is as for Owner.
func Holder(local, remote netip.AddrPort) (pid int, known bool) {
	m := connection(local, remote)
	if m == nil {
		return 0, false
	}
	inode := binary.NativeEndian.Uint32(m[68:])
	each("[0-9]*", func(process string, of uint32) {
		if of == inode {
			pid, _ = strconv.Atoi(filepath.Base(process))
		}
	})
	return pid, true
}

// connection returns the kernel's message about the local socket of a TCP connection, nil if there is none.
func connection(local, remote netip.AddrPort) []byte {
	local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
	remote = netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port())
	if local.Addr().Is4() != remote.Addr().Is4() {
		return nil
	}
	family := uint8(unix.AF_INET6)
	if local.Addr().Is4() {
		family = unix.AF_INET
	}
	r := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, 0)
	r.AddData(&exact{request{family, unix.IPPROTO_TCP, 0, ^uint32(0)}, local, remote})
	messages, err := r.Execute(unix.NETLINK_INET_DIAG, 0)
	if err != nil || len(messages) != 1 || len(messages[0]) < MessageSize {
		return nil
	}
	m := messages[0]
	listens, closed := m[1] == tcpListen, binary.NativeEndian.Uint32(m[68:]) == 0 // the kernel may report root as the owner of a socket without an inode
	if listens || closed {
		return nil
	}
	return m
}
