package control

import (
	"fmt"
	"math/bits"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/policy"
)

// The headers without options that MTU and MSS differ by.
const (
	headers4 = 40
	headers6 = 60
)

// facts are what a SYN-ACK for a service of this host announces, as its kernel would.
func facts(s *ir.Protection, m ir.CookieMethod, mtu int) ir.Handshake {
	f := ir.Handshake{
		Method: m, MSS: [2]uint16{uint16(max(mtu-headers4, policy.MinMSS)), uint16(max(mtu-headers6, policy.MinMSS))},
		WScale: windowScale(), Options: options(m),
	}
	if s.MSS > 0 {
		f.MSS = [2]uint16{s.MSS, s.MSS}
	}
	if s.WScale >= 0 {
		f.WScale = uint8(s.WScale)
	}
	f.Window = firstWindow(f.MSS)
	return f
}

// leastMTU is the smallest of the devices.
func leastMTU(devices []string) (int, error) {
	const most = 65535
	least := most
	for _, name := range devices {
		if err := datapath.DeviceExists(name); err != nil {
			return 0, err
		}
		link, err := netlink.LinkByName(name)
		if err != nil {
			return 0, fmt.Errorf("device %s: %w", name, err)
		}
		least = min(least, link.Attrs().MTU)
	}
	return least, nil
}

// windowScale is the scale that the kernel offers: what the largest buffer takes beyond 16 bits (tcp_select_initial_window
// in net/ipv4/tcp_output.c).
func windowScale() uint8 {
	space := max(receiveBuffer()[2], sysctl("core/rmem_max", 212992)[0])
	return uint8(min(max(bits.Len(uint(space))-16, 0), policy.MaxWScale))
}

// firstWindow is the window in the kernel's SYN-ACKs: the half of a new socket's buffer that is not for overhead, in whole
// segments (the same function). These are shorter with timestamps, and in IPv6; of all that the kernel may have said the
// least is never more than it takes.
func firstWindow(mss [2]uint16) uint16 {
	const most, timestamps = 65535, 12
	space := receiveBuffer()[1] / 2
	window := min(space, most)
	for _, m := range mss {
		for _, segment := range []int{int(m), int(m) - timestamps} {
			if space > segment {
				window = min(window, space-space%segment)
			}
		}
	}
	return uint16(window)
}

// receiveBuffer is the least, the usual and the largest size of a socket's buffer.
func receiveBuffer() []int { return sysctl("ipv4/tcp_rmem", 4096, 131072, 6291456) }

// options are those that this host does, or that the method can.
func options(m ir.CookieMethod) (o ir.TCPOptions) {
	if m == ir.MethodListener && lostToListener() != "" {
		return 0
	}
	for _, one := range []struct {
		sysctl string
		usual  int
		option ir.TCPOptions
	}{
		{"tcp_window_scaling", 1, ir.WindowScaling}, {"tcp_sack", 1, ir.SACK},
		{"tcp_timestamps", 1, ir.Timestamps}, {"tcp_ecn", 2, ir.ECN},
	} {
		if sysctl("ipv4/"+one.sysctl, one.usual)[0] != 0 {
			o |= one.option
		}
	}
	return o
}
