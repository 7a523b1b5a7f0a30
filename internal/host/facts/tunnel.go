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

// Carrier is what a tunnel's packets come in by: a port of this host, or a protocol from the tunnel's other end.
type Carrier struct {
	Device string          // of the tunnel
	By     sockets.Service // a port that others begin at; zero for a protocol without ports
	Addr   netip.Addr      // of this host, unspecified for all
	Who    string          // has the socket; "" for the kernel
	Chosen bool            // the kernel may have chosen the port, as it does where this host begins the tunnel
	Proto  uint8           // without ports
	Remote netip.Addr      // its other end
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

// Carriers are what carries the tunnel by which packets come from an address; none when that is no tunnel.
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
	protocol := func(proto uint8, local, remote net.IP) []Carrier {
		l, ok := netip.AddrFromSlice(local)
		r, also := netip.AddrFromSlice(remote)
		if !ok || !also || r.IsUnspecified() {
			return nil
		}
		return []Carrier{{Device: name, Addr: l.Unmap(), Remote: r.Unmap(), Proto: proto}}
	}
	switch t := link.(type) {
	case *netlink.Tuntap:
		pids := attached(name)
		return openPorts(name, func(s sockets.Socket, _ string) bool { return slices.ContainsFunc(pids, s.HeldBy) })
	case *netlink.Wireguard, *netlink.Vxlan, *netlink.Geneve:
		return openPorts(name, func(s sockets.Socket, who string) bool { return s.Proto == unix.IPPROTO_UDP && who == "" })
	case *netlink.Gretun:
		return protocol(unix.IPPROTO_GRE, t.Local, t.Remote)
	case *netlink.Iptun:
		return protocol(unix.IPPROTO_IPIP, t.Local, t.Remote)
	case *netlink.Sittun:
		return protocol(unix.IPPROTO_IPV6, t.Local, t.Remote)
	}
	return nil
}

// openPorts are the ports that some of the sockets that serve have.
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
		if !slices.ContainsFunc(list, func(o Carrier) bool { return o.By == c.By }) { // of IPv4 and IPv6
			list = append(list, c)
		}
	}
	return list
}

// chosenPorts are those that the kernel chooses from (ip_local_port_range of the kernel's ip-sysctl.rst).
func chosenPorts() (first, last uint16) {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if fields := strings.Fields(string(text)); len(fields) == 2 {
		a, _ := strconv.ParseUint(fields[0], 10, 16)
		b, _ := strconv.ParseUint(fields[1], 10, 16)
		return uint16(a), uint16(b)
	}
	return 32768, 60999
}

// attached are the processes that have a device of tun open (the line iff of drivers/net/tun.c).
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
