// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"fmt"
	"testing"

	"github.com/floodwall/floodwall/test/subject"
)

// TestMergeKeepsMeaning checks two rules without names for each pair of mergeable forms of keys: the program decides each packet in the same way
// before and after the passes.
func TestMergeKeepsMeaning(t *testing.T) {
	forms := []string{
		"from: 10.0.0.0/8", "from: [192.0.2.0/24, '2001:db8::/32']", "from: $some", "from: [$bans, 10.1.0.0/16]", "to: $some", "to: local",
		"not: {from: 10.0.0.0/8}", "not: {from: 192.0.2.0/24}", "not: {from: $some}", "not: {from: [$bans, 10.1.0.0/16]}", "not: {to: $some}", "not: {to: local}",
		"port: tcp/80", "port: 80-81", "not: {port: udp/80}", "from: 10.0.0.0/8, port: tcp/80", "from: 10.0.0.0/8, not: {from: 10.1.0.0/16}",
		"from: $some, not: {to: 192.0.2.1}", "proto: tcp", "not: {proto: tcp}", "family: ipv6", "ttl: 64", "not: {ttl: 64}",
	}
	var packets string
	for _, proto := range []string{"tcp %s:%d > %s:80 S", "udp %s:%d > %s:81", "tcp %s:%d > %s:80 . ttl=9"} {
		for i, src := range []string{"10.1.2.3", "10.2.2.3", "192.0.2.9", "172.16.0.1", "9.9.9.9", "203.0.113.1"} {
			for _, dst := range []string{"192.0.2.1", "172.16.0.2", "8.8.8.8"} {
				packets += fmt.Sprintf(proto+"\n", src, 1000+i, dst)
			}
		}
		packets += fmt.Sprintf(proto+"\n"+proto+"\n", "[2001:db8::1]", 5, "[2606::1]", "[2606::2]", 5, "[2001:db8:9::1]")
	}
	frames := subject.FramesOf(t, packets)
	const sets = "sets: {some: [172.16.0.0/12, '2001:db8:9::/48'], bans: {dynamic: true, max: 9}}\ndefault: pass\n"
	for i, a := range forms {
		for _, b := range forms[i:] {
			s := subject.Lower(t, fmt.Sprintf("%srules: [{%s, then: drop}, {%s, then: drop}]\n", sets, a, b))
			s.Insert(t, "bans", "9.9.9.0/24")
			if s.HasLocal() {
				s.Insert(t, "local", "192.0.2.1/32")
			}
			optimized := s.Optimized()
			for _, f := range frames {
				sameMeaning(t, s, optimized, f)
			}
		}
	}
}
