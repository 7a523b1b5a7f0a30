// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/policy"
)

// speakWireGuard are the names in /proc of programs that use unmodified WireGuard. AmneziaWG and similar programs change the types of WireGuard's
// packets, and use the same port.
var speakWireGuard = []string{"wireguard-go", "boringtun", "boringtun-cli"}

// wireGuardPort is the port for which policy.FloodKey returns the protection key of WireGuard.
const wireGuardPort = 51820

// FloodKey is policy.FloodKey for a port on which a program listens. program is "" for the kernel. The protection of WireGuard drops packets of
// changed types as a flood. So its key is proposed only if the program uses unmodified WireGuard, or if the kernel listens and has a WireGuard
// device. why says why the usual key is not proposed; it is "" if it is proposed.
func FloodKey(port uint16, program string) (key, why string) {
	key = policy.FloodKey(port)
	if port != wireGuardPort || slices.Contains(speakWireGuard, program) || program == "" && hasWireGuard() {
		return key, ""
	}
	return "udp: protect", "it is not known whether WireGuard is spoken there: `" + key + "` would lose new clients of AmneziaWG during a flood"
}

// ServedFloodKey is FloodKey for a port of this host and the program that listens on it now.
func ServedFloodKey(port uint16) (key, why string) {
	if port != wireGuardPort { // the key does not depend on the program, and finding the program takes time
		return policy.FloodKey(port), ""
	}
	serving, err := sockets.Serving()
	i := slices.IndexFunc(serving, func(s sockets.Socket) bool { return s.Proto == unix.IPPROTO_UDP && s.Port == wireGuardPort })
	if err != nil || i < 0 {
		return FloodKey(wireGuardPort, "nobody")
	}
	return FloodKey(wireGuardPort, sockets.Programs().Of(serving[i]))
}

// hasWireGuard reports whether this network namespace has a WireGuard device, and no AmneziaWG device.
func hasWireGuard() bool {
	links, err := netlink.LinkList()
	has := func(kind string) bool {
		return slices.ContainsFunc(links, func(l netlink.Link) bool { return l.Type() == kind })
	}
	return err == nil && has("wireguard") && !has("amneziawg")
}
