// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/floodwall/floodwall/internal/os/sockets"
)

// remoteNet is the length of the IPv6 prefixes whose addresses count as one user, because a host can have any number of addresses in its prefix.
const remoteNet = 64

// userOf returns a name for the client of a connection: a user of this host, or the address of another host. conns uses the name to share connections
// fairly. Clients on this host whose user the kernel does not know count as one user. Clients that have closed their end are among them.
func userOf(conn net.Conn) string {
	if uid, _, err := sockets.Peer(conn); err == nil {
		return fmt.Sprint("user ", uid)
	}
	local, okLocal := conn.LocalAddr().(*net.TCPAddr)
	remote, okRemote := conn.RemoteAddr().(*net.TCPAddr)
	if !okLocal || !okRemote {
		return ""
	}
	if uid, known := sockets.Owner(remote.AddrPort(), local.AddrPort()); known {
		return fmt.Sprint("user ", uid)
	}
	addr := remote.AddrPort().Addr().Unmap()
	switch {
	case addr.IsLoopback() || remote.IP.Equal(local.IP):
		return ""
	case addr.Is6():
		return netip.PrefixFrom(addr.WithZone(""), remoteNet).Masked().String()
	}
	return addr.String()
}
