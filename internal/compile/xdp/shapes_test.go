// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
)

// everyField is a policy with rules on every field, so that each field can change a packet's verdict.
const everyField = `
default: drop
sets:
  servers: [192.0.2.0/30, "2001:db8::/124", fe80::1]
  peers: [198.51.100.0/24, "2001:db8::/64"]
rules:
  - {name: tagged, vlan: [10, 2], dscp: 0, ttl: 1-64, port: udp/5, then: pass}
  - {name: tag20, vlan: 20, then: drop}
  - {name: web, to: $servers, port: tcp/80, flags: "syn/syn,ack", length: 0-48, then: pass}
  - {name: data, to: $servers, port: tcp/80, not: {flags: syn, vlan: none}, then: pass}
  - {name: long, port: tcp/80, length: 60-70, then: drop}
  - {name: dns, sport: 53, from: $peers, then: drop}
  - {name: ping4, icmp: icmp/8, fragment: none, then: pass}
  - {name: ping6, icmp: icmpv6/128/0, ttl: 64, then: pass}
  - {name: solicit, icmp: nd-neighbor-solicit, family: ipv6, then: pass}
  - {name: later4, fragment: later, family: ipv4, then: drop}
  - {name: later6, fragment: later, proto: [tcp, udp, icmpv6], then: pass}
  - {name: first, fragment: first, then: drop}
  - {name: tunnels, proto: [gre, esp, ah], then: pass}
  - {name: ends, proto: [0, 43, 44, 60], then: drop}
  - {name: six, family: ipv6, then: pass}
`

func TestShapes(t *testing.T) {
	frames := subject.Shapes(t)
	for _, checks := range []string{"off", "standard"} {
		t.Run(checks, func(t *testing.T) {
			t.Parallel()
			s := subject.Lower(t, "checks: "+checks+everyField)
			s.Optimized().Agree(t, frames)
		})
	}
}

// cutFrames are the frames that TestTruncation truncates at each byte.
const cutFrames = `
tcp 198.51.100.7:1234 > 192.0.2.1:80 S
tcp 198.51.100.7:1234 > 192.0.2.1:80 S tcpopts=mss:1460,sack,ts,ws:7 vlan=10,20 payload="data"
tcp 198.51.100.7:1234 > 192.0.2.1:80 S ipopts=0194040000830704c0000201 frag=first
udp 198.51.100.7:53 > 192.0.2.1:5 ipopts=94040000 payload="data" vlan=10
icmp 198.51.100.7 > 192.0.2.1 payload="data"
udp 198.51.100.7:53 > 192.0.2.1:5 frag=later payload="data"
tcp [2001:db8::7]:1234 > [2001:db8::1]:80 S vlan=10,20
tcp [2001:db8::7]:1234 > [2001:db8::1]:80 S ext=hbh,dst,rh2,frag,ah,dst payload="data"
tcp [2001:db8::7]:1234 > [2001:db8::1]:80 S ext=hbh,rh0,frag,dst frag=first
udp [2001:db8::7]:1234 > [2001:db8::1]:5 ext=frag,dst frag=later payload="data"
icmpv6 fe80::7 > fe80::1 type=135 ext=dst,dst,dst,dst,dst,dst,dst
arp vlan=1,2,3
arp vlan=1
`

// TestTruncation truncates frames at each byte, and sets the length in their headers to each smaller value.
func TestTruncation(t *testing.T) {
	whole := subject.FramesOf(t, cutFrames)
	frames := append(subject.CutEverywhere(whole), claimLess(whole)...)
	for _, checks := range []string{"off", "standard", subject.AllChecks(), "{profile: off, truncated: on}", "{profile: off, tiny-fragment: on}"} {
		t.Run(strings.SplitAfter(checks, ",")[0], func(t *testing.T) {
			t.Parallel()
			s := subject.Lower(t, "checks: "+checks+everyField)
			s.Optimized().Agree(t, frames)
		})
	}
}

// claimLess returns copies of frames in which the IP header states each possible length, from 0 to more than the real length.
func claimLess(frames []subject.Probe) (out []subject.Probe) {
	for _, f := range frames {
		at := 14
		for f.Frame[at-2] == 0x81 || f.Frame[at-2] == 0x88 { // VLAN tags
			at += 4
		}
		field, ok := map[uint16]int{0x0800: 2, 0x86dd: 4}[binary.BigEndian.Uint16(f.Frame[at-2:])]
		if !ok {
			continue
		}
		for n := range len(f.Frame) {
			c := slices.Clone(f.Frame)
			binary.BigEndian.PutUint16(c[at+field:], uint16(n))
			out = append(out, subject.Probe{Name: fmt.Sprintf("%s, says %d bytes", f.Name, n), Frame: c})
		}
	}
	return out
}

// TestUnreachable loads policies in which the only rule with a condition cannot be reached, because it follows a rule that matches everything, or can
// never match. The program must contain neither the code nor the maps of the condition.
func TestUnreachable(t *testing.T) {
	for _, condition := range []string{
		"then: drop, observe: true", `payload: {contains: x}, then: drop`, `payload: {at: {offset: 0, bytes: "|de ad|"}}, then: drop`,
		"over: {rate: 1/s, per: from}, then: drop", "dns: {type: ANY}, then: truncate", "then: drop, sample: 1/2",
	} {
		s := subject.Lower(t, "default: pass\nrules:\n  - {name: all, then: pass}\n  - {name: late, proto: udp, "+condition+"}\n")
		s.Agree(t, nil)
		never := s.Program.Rules[len(s.Program.Rules)-1]
		never.Match = append(slices.Clone(never.Match), ir.Match{Field: packet.VLAN})
		s.Program.Rules = []ir.Rule{never}
		s.Agree(t, nil)
	}
}
