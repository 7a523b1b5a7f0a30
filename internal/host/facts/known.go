// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// largest is the largest number of conntrack entries that are searched. The kernel can only return all entries or none.
var largest = 100_000

// ErrTooMany says that conntrack has too many connections to search.
var ErrTooMany = errors.New("conntrack has too many connections to look through for servers; say `backends`")

// Known returns servers with which clients have connections at the given ports, according to conntrack. It returns at most `most` servers, sorted by
// address. It returns ErrTooMany when there are too many connections to search.
func Known(port func(uint16) bool, most int) (list []netip.AddrPort, err error) {
	const counter = "/proc/sys/net/netfilter/nf_conntrack_count"
	text, err := os.ReadFile(counter)
	if os.IsNotExist(err) {
		return nil, nil // the kernel has no conntrack
	}
	if err != nil {
		return nil, fmt.Errorf("connections in conntrack: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", counter, err)
	case n > largest:
		return nil, ErrTooMany
	}
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil {
			return nil, fmt.Errorf("connections in conntrack: %w", err)
		}
		for _, f := range flows {
			if server, ok := serverOf(f); ok && port(server.Port()) && !slices.Contains(list, server) {
				list = append(list, server)
			}
		}
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return list[:min(most, len(list))], nil
}

// serverOf returns the server that has answered a connection. ok is false if only SYNPROXY has answered and no server has accepted the connection
// yet.
func serverOf(f *netlink.ConntrackFlow) (server netip.AddrPort, ok bool) {
	info, isTCP := f.ProtoInfo.(*netlink.ProtoInfoTCP)
	if f.Forward.Protocol != unix.IPPROTO_TCP || !isTCP || info.State != nl.TCP_CONNTRACK_ESTABLISHED {
		return server, false
	}
	addr, ok := netip.AddrFromSlice(f.Reverse.SrcIP)
	return netip.AddrPortFrom(addr.Unmap(), f.Reverse.SrcPort), ok
}
