package facts

import (
	"math/bits"

	"github.com/floodwall/floodwall/policy"
)

// TCP is how the kernel of this host begins connections: what its SYN-ACKs would announce.
type TCP struct {
	Syncookies    int // net.ipv4.tcp_syncookies: 0 never, 1 when a queue is full, 2 always
	Timestamps    int // net.ipv4.tcp_timestamps: 0 off, 1 with a secret offset, 2 without
	WindowScaling bool
	SACK          bool
	ECN           bool
	WScale        uint8 // the window scale that it offers
	buffer        int   // of a new socket, in bytes
}

// ReadTCP asks the kernel for the thread's network namespace.
func ReadTCP() TCP {
	is := func(name string, usual int) int { return Sysctl("ipv4/"+name, usual)[0] }
	buffers := Sysctl("ipv4/tcp_rmem", 4096, 131072, 6291456) // the least, the usual and the largest size of a socket's buffer
	return TCP{
		Syncookies: is("tcp_syncookies", 1), Timestamps: is("tcp_timestamps", 1), WindowScaling: is("tcp_window_scaling", 1) != 0,
		SACK: is("tcp_sack", 1) != 0, ECN: is("tcp_ecn", 2) != 0,
		WScale: windowScale(max(buffers[2], Sysctl("core/rmem_max", 212992)[0])), buffer: buffers[1],
	}
}

// windowScale is the scale that the kernel offers: the bits that the largest buffer takes beyond 16 (tcp_select_initial_window
// in net/ipv4/tcp_output.c).
func windowScale(largest int) uint8 {
	return uint8(min(max(bits.Len(uint(largest))-16, 0), policy.MaxWScale))
}

// FirstWindow is the window in the kernel's SYN-ACKs, for an MSS in IPv4 and in IPv6: the half of a new socket's buffer that is
// not for overhead, in whole segments (the same function). These are shorter with timestamps, and in IPv6; the least of all
// that the kernel may have said is never more than it takes.
func (t TCP) FirstWindow(mss [2]uint16) uint16 {
	const most, timestamps = 65535, 12
	space := t.buffer / 2
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
