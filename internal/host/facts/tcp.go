// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"math/bits"

	"github.com/floodwall/floodwall/policy"
)

// TCP has the kernel settings that determine the options in the SYN-ACKs of this host.
type TCP struct {
	Syncookies    int // net.ipv4.tcp_syncookies: 0 never, 1 when a queue is full, 2 always
	Timestamps    int // net.ipv4.tcp_timestamps: 0 off, 1 with a secret offset, 2 without an offset
	WindowScaling bool
	SACK          bool
	ECN           bool
	WScale        uint8 // the window scale that the kernel offers
	buffer        int   // size of the buffer of a new socket, in bytes
}

// ReadTCP reads the settings of the thread's network namespace.
func ReadTCP() TCP {
	is := func(name string, usual int) int { return Sysctl("ipv4/"+name, usual)[0] }
	buffers := Sysctl("ipv4/tcp_rmem", 4096, 131072, 6291456) // the smallest, the default and the largest size of a socket's buffer
	return TCP{
		Syncookies: is("tcp_syncookies", 1), Timestamps: is("tcp_timestamps", 1), WindowScaling: is("tcp_window_scaling", 1) != 0,
		SACK: is("tcp_sack", 1) != 0, ECN: is("tcp_ecn", 2) != 0,
		WScale: windowScale(max(buffers[2], Sysctl("core/rmem_max", 212992)[0])), buffer: buffers[1],
	}
}

// windowScale returns the window scale that the kernel offers: the number of bits of the largest buffer size minus 16, but at least 0
// (tcp_select_initial_window in net/ipv4/tcp_output.c).
func windowScale(largest int) uint8 {
	return uint8(min(max(bits.Len(uint(largest))-16, 0), policy.MaxWScale))
}

// FirstWindow returns the window in the kernel's SYN-ACKs, for an MSS in IPv4 and one in IPv6. The kernel uses half of a new socket's buffer for
// data, in whole segments (tcp_select_initial_window). Segments are shorter with timestamps, and in IPv6. FirstWindow returns the smallest of all
// possible windows, which is never more than the kernel accepts.
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
