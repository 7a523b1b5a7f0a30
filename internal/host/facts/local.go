// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/sockets"
)

// LocalPrefixes lists the destinations that the kernel delivers to this host. These are the destinations of all routes of type local, in the table
// local and in the tables of VRFs: the addresses of devices, which come first, and prefixes of `ip route add local PREFIX dev lo`. Netfilter makes
// the same test for each packet (`fib daddr type local`). LocalPrefixes leaves out 127.0.0.0/8: no packet from outside has such a destination, and if
// the set had a prefix, each packet would have to be looked up by prefix.
func LocalPrefixes() (list []netip.Prefix, err error) {
	tables, err := localTables()
	if err != nil {
		return nil, err
	}
	local := map[netip.Prefix]bool{}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		routes, err := dumpLocal(family)
		if err != nil {
			return nil, fmt.Errorf("listing local routes: %w", err)
		}
		for _, r := range routes {
			if p, table := destination(r); tables[table] && p != netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8) {
				local[p] = true
			}
		}
	}
	own, err := sockets.OwnAddresses()
	if err != nil {
		return nil, err
	}
	for _, a := range own {
		if p := netip.PrefixFrom(a, a.BitLen()); local[p] {
			list = append(list, p)
			delete(local, p)
		}
	}
	routed := len(list)
	for p := range local {
		list = append(list, p)
	}
	slices.SortFunc(list[routed:], netip.Prefix.Compare)
	return list, nil
}

// localTables returns the routing tables in which netfilter looks for routes of type local.
func localTables() (map[uint32]bool, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	tables := map[uint32]bool{unix.RT_TABLE_LOCAL: true}
	for _, l := range links {
		if vrf, ok := l.(*netlink.Vrf); ok {
			tables[vrf.Table] = true
		}
	}
	return tables, nil
}

// dumpLocal lists the routes of type local in all tables. With NETLINK_GET_STRICT_CHK the kernel leaves out all other routes, of which a router may
// have a million.
func dumpLocal(family uint8) ([][]byte, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := unix.SetsockoptInt(s.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1); err != nil {
		return nil, err
	}
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family, Type: unix.RTN_LOCAL}})
	routes, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) { // a kernel without IPv6
		return nil, nil
	}
	return routes, err
}

// destination returns the prefix and the table of a route.
func destination(route []byte) (p netip.Prefix, table uint32) {
	m := nl.DeserializeRtMsg(route)
	a, table := netip.IPv4Unspecified(), uint32(m.Table)
	if m.Family == unix.AF_INET6 {
		a = netip.IPv6Unspecified()
	}
	attributes, _ := nl.ParseRouteAttr(route[m.Len():])
	for _, attribute := range attributes {
		switch attribute.Attr.Type {
		case unix.RTA_DST:
			a, _ = netip.AddrFromSlice(attribute.Value)
		case unix.RTA_TABLE:
			table = binary.NativeEndian.Uint32(attribute.Value)
		}
	}
	return netip.PrefixFrom(a, int(m.Dst_len)), table
}

// FollowLocal reports changes of LocalPrefixes until ctx ends. One report may stand for several changes, or for changes that may have been lost. The
// socket's filter passes only routes of type local, because the routes of a router's peers would keep a CPU busy.
func FollowLocal(ctx context.Context) (<-chan struct{}, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("watching local routes: %w", err)
	}
	if err := onlyLocal(s.GetFd()); err != nil {
		s.Close()
		return nil, fmt.Errorf("watching local routes: %w", err)
	}
	changed := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, s.Close)
	go func() {
		defer close(changed)
		defer stop()
		for {
			_, _, err := s.Receive()
			if err != nil && !errors.Is(err, unix.ENOBUFS) { // ENOBUFS means that changes were lost
				return
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	return changed, nil
}

// onlyLocal makes a socket receive only routes of type local. The type rtm_type is byte 7 of struct rtmsg, which follows the 16 bytes of struct
// nlmsghdr.
func onlyLocal(fd int) error {
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: unix.SizeofNlMsghdr + uint32(unsafe.Offsetof(unix.RtMsg{}.Type))},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.RTN_LOCAL, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
		{Code: unix.BPF_RET | unix.BPF_K},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}
