// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// DHCPServers returns the known source addresses of answers from DHCP servers, sorted. These are the servers of the host's present and past leases,
// and the gateways of its default routes and of routes from DHCP, which may be relays. The list may be empty.
func (f Files) DHCPServers() ([]netip.Addr, error) {
	found := f.leaseServers()
	hops, err := gateways(func(r *netlink.Route) bool {
		return r.Dst == nil || r.Dst.IP.IsUnspecified() || r.Protocol == unix.RTPROT_DHCP
	}, netlink.FAMILY_V4)
	if err != nil {
		err = fmt.Errorf("DHCP servers: %w", err)
	}
	for _, p := range hops {
		found = append(found, p.Addr())
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return slices.Compact(found), err
}

// maxLease is the number of bytes that are read from the end of a lease file. dhclient appends to its file.
const maxLease = 16 << 10

// leaseServers returns the servers that the lease files name.
func (f Files) leaseServers() (list []netip.Addr) {
	for _, pattern := range f.Leases {
		files, _ := filepath.Glob(pattern) // our patterns are all well-formed
		for _, file := range files {
			text, _ := os.ReadFile(file)
			text = text[max(0, len(text)-maxLease):]
			a, ok := packetServer(text)
			if !ok {
				a, ok = writtenServer(text)
			}
			if ok && !slices.Contains(list, a) {
				list = append(list, a)
			}
		}
	}
	return list
}

// leaseServer matches the line of a lease file that names the server. systemd-networkd and NetworkManager use the first form, and dhclient the
// second.
var leaseServer = wording.Regexp(`(?m)^(?:SERVER_ADDRESS=|\s*option dhcp-server-identifier )(\d+\.\d+\.\d+\.\d+);?$`)

// writtenServer returns the server of the last lease in a text.
func writtenServer(text []byte) (a netip.Addr, ok bool) {
	lines := leaseServer().FindAllSubmatch(text, -1)
	if lines == nil {
		return a, false
	}
	a, err := netip.ParseAddr(string(lines[len(lines)-1][1]))
	return a, err == nil && a.Is4() && a.IsGlobalUnicast()
}

// Offsets and options of a DHCP message (RFC 2131, 2, and RFC 2132, 2 and 9.7). dhcpcd stores such a message as its lease.
const (
	dhcpCookie       = 236
	dhcpOptions      = dhcpCookie + 4
	optionPad        = 0
	optionServer     = 54
	optionEnd        = 255
	optionServerSize = 4
)

// packetServer returns the server identifier of a DHCP message.
func packetServer(message []byte) (a netip.Addr, ok bool) {
	if len(message) < dhcpOptions || !bytes.Equal(message[dhcpCookie:dhcpOptions], []byte{99, 130, 83, 99}) {
		return a, false
	}
	for rest := message[dhcpOptions:]; len(rest) > 1 && rest[0] != optionEnd; {
		if rest[0] == optionPad {
			rest = rest[1:]
			continue
		}
		size := int(rest[1])
		if len(rest) < 2+size {
			return a, false
		}
		if rest[0] == optionServer && size == optionServerSize {
			a = netip.AddrFrom4([4]byte(rest[2:6]))
			return a, a.IsGlobalUnicast()
		}
		rest = rest[2+size:]
	}
	return a, false
}
