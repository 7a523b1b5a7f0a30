// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/sockets"
)

// Carrier says how a tunnel's packets arrive: at a port of this host, or in a protocol without ports from the tunnel's other end.
type Carrier struct {
	Device string          // the device of the tunnel, or "IPsec"
	By     sockets.Service // the port to which other hosts send; zero for a protocol without ports
	Addr   netip.Addr      // the address of this host; unspecified for all addresses
	Who    string          // the program that has the socket; "" for the kernel
	Chosen bool            // whether the kernel may have chosen the port, as for a tunnel that this host opens
	Proto  uint8           // the protocol, if it has no ports
	Remote netip.Addr      // the address of the other end; not valid: any address
}

func (c Carrier) String() string {
	if c.Remote.IsValid() {
		return fmt.Sprintf("protocol %d from %s", c.Proto, c.Remote)
	}
	if c.Who == "" {
		return c.By.String()
	}
	return fmt.Sprintf("%s of %s", c.By, c.Who)
}

// Carriers returns the carriers of the tunnel through which packets from an address arrive. It returns nil when there is no tunnel.
func Carriers(from netip.Addr) []Carrier {
	routes, err := netlink.RouteGet(from.AsSlice())
	if err != nil || len(routes) == 0 {
		return nil
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return nil
	}
	name := link.Attrs().Name
	switch link.(type) {
	case *netlink.Tuntap:
		pids := attached(name)
		return openPorts(name, func(s sockets.Socket, _ string) bool { return slices.ContainsFunc(pids, s.HeldBy) })
	case *netlink.Wireguard, *netlink.Vxlan, *netlink.Geneve:
		return openPorts(name, func(s sockets.Socket, who string) bool { return s.Proto == unix.IPPROTO_UDP && who == "" })
	}
	return slices.DeleteFunc(Outer(link), func(c Carrier) bool { return !c.Remote.IsValid() })
}

// Outer returns the protocols other than UDP in which a tunnel's packets arrive. It returns nil for other devices. Packets of a tunnel over UDP go to
// a socket of the kernel, which is listed with the other sockets.
func Outer(link netlink.Link) (list []Carrier) {
	var protos []uint8
	var local, remote net.IP
	switch l := link.(type) {
	case *netlink.Gretun:
		protos, local, remote = bare(l.EncapType, unix.IPPROTO_GRE), l.Local, l.Remote
	case *netlink.Gretap:
		protos, local, remote = bare(l.EncapType, unix.IPPROTO_GRE), l.Local, l.Remote
	case *netlink.Iptun:
		protos, local, remote = bare(l.EncapType, unix.IPPROTO_IPIP), l.Local, l.Remote
	case *netlink.Sittun:
		protos, local, remote = bare(l.EncapType, inner(l.Proto, unix.IPPROTO_IPV6)...), l.Local, l.Remote
	case *netlink.Ip6tnl:
		protos, local, remote = bare(l.EncapType, inner(l.Proto, unix.IPPROTO_IPIP, unix.IPPROTO_IPV6)...), l.Local, l.Remote
	}
	for _, proto := range protos {
		here, _ := netip.AddrFromSlice(local)
		list = append(list, Carrier{Device: link.Attrs().Name, Proto: proto, Addr: here.Unmap(), Remote: Peer(remote)})
	}
	return list
}

// bare returns the given protocols for a tunnel without a UDP header (TUNNEL_ENCAP_NONE of linux/if_tunnel.h). For a tunnel with one it returns nil.
func bare(encapsulation uint16, protos ...uint8) []uint8 {
	if encapsulation != 0 {
		return nil
	}
	return protos
}

// inner returns the protocol to which a tunnel is restricted, or all protocols that it can carry.
func inner(proto uint8, all ...uint8) []uint8 {
	if proto != 0 {
		return []uint8{proto}
	}
	return all
}

// Peer returns the address of a tunnel's other end. It returns the zero Addr when the other end may have any address.
func Peer(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	if a = a.Unmap(); a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// openPorts returns carriers for the serving sockets for which of returns true.
func openPorts(device string, of func(s sockets.Socket, program string) bool) (list []Carrier) {
	serving, err := sockets.Serving()
	if err != nil {
		return nil
	}
	programs := sockets.Programs()
	first, last := chosenPorts()
	for _, s := range serving {
		who := programs.Of(s)
		if s.Addr.IsLoopback() || !of(s, who) {
			continue
		}
		c := Carrier{Device: device, By: s.Service, Addr: s.Addr, Who: who}
		c.Chosen = s.Proto == unix.IPPROTO_UDP && s.Port >= first && s.Port <= last && !s.Known()
		if !slices.ContainsFunc(list, func(o Carrier) bool { return o.By == c.By }) { // the same port may be open in IPv4 and IPv6
			list = append(list, c)
		}
	}
	return list
}

// chosenPorts returns the range from which the kernel chooses ports (ip_local_port_range of the kernel's ip-sysctl.rst).
func chosenPorts() (first, last uint16) {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if fields := strings.Fields(string(text)); len(fields) == 2 {
		a, _ := strconv.ParseUint(fields[0], 10, 16)
		b, _ := strconv.ParseUint(fields[1], 10, 16)
		return uint16(a), uint16(b)
	}
	return 32768, 60999
}

// attached returns the processes that have a tun device open (the line iff in fdinfo, from drivers/net/tun.c).
func attached(device string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/fdinfo/*")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(append(text, '\n'), []byte("\niff:\t"+device+"\n")) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(file, "/")[2])
		if err == nil && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}
