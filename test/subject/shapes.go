// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"strings"
	"testing"
)

// The parts from which Shapes makes packets.
var (
	shapeTags = []string{"", " vlan=10", " vlan=10,20", " vlan=1,2,3"}
	shapes4   = []string{
		"", " ipopts=94040000", " ipopts=830704c0000201", " ipopts=0107070400000000ff",
		" ipopts=01010101010101010101010101010101010101010101010101010101010101010101010101010101",
		" frag=first", " frag=later", " frag=8", " frag=65528 ipopts=94040000",
	}
	shapes6 = []string{
		"", " ext=hbh", " ext=rh0", " ext=rh2", " ext=dst", " ext=ah", " ext=frag", " frag=first", " frag=later", " frag=8",
		" ext=hbh,dst,rh2,frag,ah,dst", " ext=hbh,frag,dst frag=first", " ext=dst,frag,hbh,frag", " ext=ah,frag frag=later",
		" ext=dst,dst,dst,dst,dst,dst,dst", " ext=frag,ah frag=first",
	}
	shapes4L4 = []string{
		"tcp 198.51.100.7:1234 > 192.0.2.1:80 S", "tcp 198.51.100.7:1234 > 192.0.2.1:80 P. payload=\"GET /\"",
		"tcp 198.51.100.7:1234 > 192.0.2.1:80 S tcpopts=mss:1460,sack,ts,ws:7", "udp 198.51.100.7:53 > 192.0.2.1:5 payload=0x0102",
		"icmp 198.51.100.7 > 192.0.2.1", "gre 198.51.100.7 > 192.0.2.1 payload=0x0000080045",
	}
	shapes6L4 = []string{
		"tcp [2001:db8::7]:1234 > [2001:db8::1]:80 S", "udp [2001:db8::7]:53 > [2001:db8::1]:5 payload=0x0102",
		"icmpv6 2001:db8::7 > 2001:db8::1", "icmpv6 fe80::7 > fe80::1 type=135", "esp 2001:db8::7 > 2001:db8::1 payload=0x00000001",
	}
)

// Shapes returns frames with all combinations of headers: IPv4 and IPv6, VLAN tags, IPv4 options, extension headers, fragments.
func Shapes(t testing.TB) []Probe {
	var lines strings.Builder
	add := func(l4, variants []string) {
		for _, tag := range shapeTags {
			for _, l := range l4 {
				for _, v := range variants {
					lines.WriteString(l + tag + v + "\n")
				}
			}
		}
	}
	add(shapes4L4, shapes4)
	add(shapes6L4, shapes6)
	lines.WriteString("arp\narp vlan=5\narp vlan=5,6\n")
	return FramesOf(t, lines.String())
}
