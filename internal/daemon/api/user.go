package api

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/floodwall/floodwall/internal/os/sockets"
)

// remoteNet is how long the prefixes of IPv6 are whose addresses count as one user: hosts have as many addresses as they want.
const remoteNet = 64

// userOf names who is at the other end of a connection, for the share of places: a user of this host, or the address of another one. All
// of this host whose user the kernel does not tell are one, as those who have closed their end.
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
