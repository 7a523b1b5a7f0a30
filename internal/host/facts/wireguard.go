package facts

import (
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/policy"
)

// speakWireGuard are the programs that speak WireGuard as it is, by their names in /proc. AmneziaWG and others change the types of its packets,
// and listen at the same port.
var speakWireGuard = []string{"wireguard-go", "boringtun", "boringtun-cli"}

// wireGuardPort is the one at which policy.FloodKey takes a service for WireGuard.
const wireGuardPort = 51820

// FloodKey is policy.FloodKey for a port at which a program listens, "" for the kernel. To the protection for WireGuard, packets of changed
// types are a flood. So it is proposed only where the program speaks WireGuard, or where it is the kernel and has such a device. why says
// why the usual key is not proposed, "" where it is.
func FloodKey(port uint16, program string) (key, why string) {
	key = policy.FloodKey(port)
	if port != wireGuardPort || slices.Contains(speakWireGuard, program) || program == "" && hasWireGuard() {
		return key, ""
	}
	return "udp: protect", "it is not known whether WireGuard is spoken there: `" + key + "` would lose new clients of AmneziaWG during a flood"
}

// FloodKeyFor is FloodKey for a service of a policy for which policy.Unprotected proposes a key.
func FloodKeyFor(proposed string) (key, why string) {
	if proposed != policy.FloodKey(wireGuardPort) {
		return proposed, ""
	}
	serving, err := sockets.Serving()
	i := slices.IndexFunc(serving, func(s sockets.Socket) bool { return s.Proto == unix.IPPROTO_UDP && s.Port == wireGuardPort })
	if err != nil || i < 0 {
		return FloodKey(wireGuardPort, "nobody")
	}
	return FloodKey(wireGuardPort, sockets.Programs().Of(serving[i]))
}

// hasWireGuard reports whether this network namespace has a device of WireGuard, and none of AmneziaWG.
func hasWireGuard() bool {
	links, err := netlink.LinkList()
	has := func(kind string) bool {
		return slices.ContainsFunc(links, func(l netlink.Link) bool { return l.Type() == kind })
	}
	return err == nil && has("wireguard") && !has("amneziawg")
}
