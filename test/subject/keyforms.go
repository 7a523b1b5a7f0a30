// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"fmt"
	"strings"
)

// KeyForm has rules that use a key in forms that the targets translate differently. Its packets have values at the limits of the tested values.
type KeyForm struct{ Name, Rules, Packets string }

// KeyForms are tests of the netfilter targets. The tests load the policies into the kernel, and count the packets that match each rule.
var KeyForms = []KeyForm{
	{"length", `
  - {name: some, length: [60-70, 100-110, 1200], then: drop}
  - {name: others, not: {length: [80-90, 300-400]}, proto: udp, then: drop}`,
		each(sizes("udp 8.8.8.8:5 > 1.1.1.1:80", "udp [2606::1]:5 > [2606::99]:80", "icmp 8.8.8.8 > 1.1.1.1", "icmpv6 2606::1 > 2606::99"),
			59, 60, 70, 71, 79, 80, 90, 91, 99, 100, 110, 111, 140, 150, 299, 300, 340, 400, 401, 440, 1160, 1199, 1200, 1201, 1240)},
	{"ttl", `
  - {name: some, ttl: [1, 5-7, 255], then: drop}
  - {name: low, ttl: 0-9, then: drop}
  - {name: high, ttl: 250-255, then: drop}
  - {name: other, not: {ttl: [64, 128]}, then: drop}`,
		each([]string{"udp 8.8.8.8:5 > 1.1.1.1:80 ttl=%d", "udp [2606::1]:5 > [2606::99]:80 ttl=%d"}, 1, 2, 4, 5, 7, 8, 9, 10, 63, 64, 65, 128, 249, 250, 254, 255)},
	{"dscp", "\n  - {name: some, dscp: [8, 10-12, 46], then: drop}\n  - {name: other, not: {dscp: [0, 63]}, then: drop}",
		each([]string{"udp 8.8.8.8:5 > 1.1.1.1:80 dscp=%d", "udp [2606::1]:5 > [2606::99]:80 dscp=%d"}, 0, 7, 8, 9, 10, 12, 13, 46, 62, 63)},
	{"icmp of one code", "\n  - {name: errors, icmp: [icmp/3/0, icmp/3/4, icmp/11/1, icmpv6/1/0, icmpv6/4/2], then: drop}",
		icmp(3, 0, 1, 4, 5) + icmp(11, 0, 1, 2) + icmp(8, 0) + icmpv6(1, 0, 1, 4) + icmpv6(4, 0, 1, 2) + icmpv6(128, 0)},
	{"icmp of all codes", "\n  - {name: errors, icmp: [icmp/3, icmp/11/0, icmpv6/1, icmpv6/3/0], then: drop}",
		icmp(3, 0, 1, 255) + icmp(11, 0, 1) + icmp(4, 0) + icmpv6(1, 0, 255) + icmpv6(3, 0, 1) + icmpv6(2, 0)},
	{"icmp but some", "\n  - {name: others, proto: [icmp, icmpv6], not: {icmp: [icmp/8, icmp/3/0, icmpv6/128, icmpv6/1/0]}, then: drop}",
		icmp(8, 0, 1) + icmp(3, 0, 1) + icmp(0, 0) + icmpv6(128, 0, 1) + icmpv6(1, 0, 1) + icmpv6(129, 0)},
	{"fragment", `
  - {name: none, fragment: none, port: udp/80, then: drop}
  - {name: first, fragment: first, port: udp/81, then: drop}
  - {name: header, fragment: [none, first], port: udp/82, then: drop}
  - {name: ends, fragment: [none, later], to: 1.1.1.2, then: drop}
  - {name: parts, fragment: [first, later], to: 1.1.1.3, then: drop}
  - {name: later, fragment: later, then: drop}`,
		fragments("udp 8.8.8.8:5 > 1.1.1.1:80", "udp 8.8.8.8:5 > 1.1.1.1:81", "udp 8.8.8.8:5 > 1.1.1.1:82", "udp 8.8.8.8:5 > 1.1.1.2:7", "udp 8.8.8.8:5 > 1.1.1.3:7")},
	{"text", `
  - {name: near, port: udp/80, payload: {contains: evil, within: 20}, then: drop}
  - {name: either, port: udp/81, payload: {contains: evil, within: 8, nocase: true}, then: drop}
  - {name: lacks, port: udp/82, not: {payload: {contains: evil, within: 20}}, then: drop}`,
		texts20("udp 8.8.8.8:5 > 1.1.1.1:80", "udp [2606::1]:5 > [2606::99]:80", "udp 8.8.8.8:5 > 1.1.1.1:81", "udp 8.8.8.8:5 > 1.1.1.1:82")},
	{"bytes at a place", `
  - {name: begins, payload: {at: {offset: 0, bytes: "|12 34|"}}, then: drop}
  - {name: behind, payload: {at: {offset: 3, bytes: "|ab|"}}, then: drop}`,
		places("tcp 8.8.8.8:5 > 1.1.1.1:80 A ack=1", "tcp [2606::1]:5 > [2606::99]:80 A ack=1", "udp 8.8.8.8:5 > 1.1.1.1:80", "udp [2606::1]:5 > [2606::99]:80",
			"icmp 8.8.8.8 > 1.1.1.1", "icmpv6 2606::1 > 2606::99")},
}

// each returns a line for each combination of a format in lines and a number.
func each(lines []string, numbers ...int) string {
	var b strings.Builder
	for _, line := range lines {
		for _, n := range numbers {
			fmt.Fprintf(&b, line+"\n", n)
		}
	}
	return b.String()
}

func sizes(packets ...string) (lines []string) {
	for _, p := range packets {
		lines = append(lines, p+" len=%d")
	}
	return lines
}

func icmp(kind int, codes ...int) string {
	return each([]string{fmt.Sprintf("icmp 8.8.8.8 > 1.1.1.1 type=%d code=%%d", kind)}, codes...)
}

func icmpv6(kind int, codes ...int) string {
	return each([]string{fmt.Sprintf("icmpv6 2606::1 > 2606::99 type=%d code=%%d", kind)}, codes...)
}

func fragments(packets ...string) string {
	var b strings.Builder
	for _, p := range packets {
		fmt.Fprintf(&b, "%[1]s\n%[1]s frag=first\n%[1]s frag=later\n", p)
	}
	return b.String()
}

// texts20 returns packets with the text "evil" in their payload at different offsets, near the limit of 20 bytes.
func texts20(packets ...string) string {
	var b strings.Builder
	for _, p := range packets {
		for _, before := range []int{0, 3, 4, 5, 15, 16, 17, 30} {
			fmt.Fprintf(&b, "%s payload=%q\n%s payload=%q\n", p, strings.Repeat(".", before)+"evil", p, strings.Repeat(".", before)+"eVil....")
		}
		fmt.Fprintf(&b, "%s payload=\"none\"\n%s\n", p, p)
	}
	return b.String()
}

// places returns packets with certain bytes at certain offsets of the payload. Each payload has at least four bytes, because iptables reads four
// bytes of a TCP payload.
func places(packets ...string) string {
	var b strings.Builder
	for _, p := range packets {
		for _, payload := range []string{"12340000", "00123400", "000000ab", "0000ab00", "00000000ab"} {
			fmt.Fprintf(&b, "%s payload=0x%s\n", p, payload)
		}
	}
	return b.String()
}
