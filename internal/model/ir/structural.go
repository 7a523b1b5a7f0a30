// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Structural is a check that a program needs even if its policy does not enable it. Without the check, a packet could hide a field from a rule or
// from another check, although its receiver reads that field.
type Structural struct {
	Check packet.Check
	Why   string // the first rule that depends on the check, and the tested key; otherwise the first check that depends on it
}

// The fields behind IPv6 extension headers, and the fields of the L4 header. A packet that fails one of these checks hides such fields from rules,
// but its receiver may read them:
//   - truncated: the chain of IPv6 headers ends at the packet's end, as the IPv6 header states it. If the payload length is 0 in front of a
//     hop-by-hop header, the kernel reads on (net/ipv6/ip6_input.c, ip6_rcv_core). In IPv4 the kernel drops such packets;
//   - tiny-fragment: a header is split into fragments (RFC 1858, RFC 3128). In IPv4 this is possible only for the TCP header, because any other
//     fits into the 8 bytes of the shortest first fragment. In IPv6 it is possible for any header behind extension headers;
//   - ext-headers, ext-order: the chain continues after the last header that is read, or has two fragment headers.
var (
	behindChain = []packet.Field{packet.Proto, packet.DPort, packet.SPort, packet.Flags, packet.ICMP, packet.Fragment, packet.DNS, packet.Verified, packet.MSS}
	l4Header    = []packet.Field{packet.DPort, packet.SPort, packet.Flags, packet.ICMP, packet.DNS, packet.Verified, packet.MSS}
)

// restsOn returns the checks on which a test of a field depends. v6 and tcp tell whether the rule can match IPv6 and TCP.
func restsOn(f packet.Field, v6, tcp bool) (set packet.CheckSet) {
	behind, header := slices.Contains(behindChain, f), slices.Contains(l4Header, f)
	if v6 && (behind || f == packet.Length) {
		set = set.With(packet.Truncated)
	}
	if v6 && behind {
		set = set.With(packet.ExtHeaders).With(packet.ExtOrder)
	}
	if v6 && behind && f != packet.Fragment || tcp && header {
		set = set.With(packet.TinyFragment)
	}
	return set
}

// headerChecks are the checks that read the L4 header. A packet that hides its L4 header evades these checks, as it evades rules. In addition, nft
// and iptables drop some packets with a truncated header because of these checks. `tcp option maxseg missing` holds for an incomplete header
// (net/netfilter/nft_exthdr.c, nft_tcp_header_pointer). A test of TCP drops a packet that ends within the header (net/netfilter/xt_tcpudp.c, tcp_mt).
var headerChecks = []struct {
	check   packet.Check
	v6, tcp bool // whether the check reads IPv6 packets, and TCP packets
}{
	{packet.NDHopLimit, true, false},
	{packet.TCPHeader, true, true},
	{packet.TCPFlags, true, true},
	{packet.PortZero, true, true},
	{packet.UDPSourceZero, true, false},
	{packet.TCPOptions, true, true},
	{packet.SYNData, true, true},
	{packet.SYNLowPort, true, true},
	{packet.SYNNoMSS, true, true},
	{packet.SYNWindowZero, true, true},
	{packet.ACKZero, true, true},
	{packet.UDPLength, true, false},
	{packet.UDP6Checksum, true, false},
	{packet.ReflectorSource, true, false},
	{packet.ICMPLarge, true, false},
}

// Structural returns, in the order of their numbers, the checks on which the meaning of the program's rules, its default and its other checks
// depends. A program that passes every packet needs none. Any other program needs vlan-depth, because rules cannot see a packet behind more tags than
// are read. Each of the other checks is needed if a rule or a check tests a field that it protects. Rules do not count if they and the default pass
// all packets.
func (p *Program) Structural() (list []Structural) {
	if p.Checks == 0 && !p.refuses() {
		return nil
	}
	needed := map[packet.Check]string{packet.VLANDepth: tooDeep}
	need := func(set packet.CheckSet, why string) {
		for c := range packet.NumChecks {
			if set.Has(c) && needed[c] == "" {
				needed[c] = why
			}
		}
	}
	if p.refuses() {
		p.rulesRestOn(need)
	}
	for _, h := range headerChecks {
		if p.Checks.Has(h.check) {
			need(restsOn(packet.DPort, h.v6, h.tcp), fmt.Sprintf("check %s reads the L4 header", h.check))
		}
	}
	for c := range packet.NumChecks {
		if why, ok := needed[c]; ok {
			list = append(list, Structural{c, why})
		}
	}
	return list
}

// rulesRestOn calls need for each test of each rule, with the checks on which the test depends.
func (p *Program) rulesRestOn(need func(set packet.CheckSet, why string)) {
	for i := range p.Rules {
		r := &p.Rules[i]
		v6, tcp := p.matchesIPv6(r), r.matchesTCP()
		for _, m := range r.Match {
			need(restsOn(m.Field, v6, tcp), fmt.Sprintf("rule %q asks for %s", r.Name, m.Field))
		}
		if len(r.Payload) > 0 || len(r.Names) > 0 || r.Unanswered {
			need(restsOn(packet.DPort, v6, tcp), fmt.Sprintf("rule %q asks for payload", r.Name))
		}
	}
}

// tooDeep is the reason for the check vlan-depth.
const tooDeep = "behind more tags no check, rule or default sees IP"

// refuses reports whether the program may refuse packets. A rule that only observes refuses none.
func (p *Program) refuses() bool {
	return p.Default != Pass || slices.ContainsFunc(p.Rules, func(r Rule) bool {
		return r.Verdict != Pass && !r.Observe || r.Protect > 0
	})
}

// matchesIPv6 reports whether a rule's tests of the family and of addresses allow IPv6 packets.
func (p *Program) matchesIPv6(r *Rule) bool {
	onlyIPv4 := func(m AddrMatch) bool {
		return !m.Not && !slices.ContainsFunc(m.Sets, func(i int) bool {
			static := p.Sets[i].Fixed()
			return static == nil || static.Size() > len(static.V4())
		})
	}
	return r.leaves(packet.Family, packet.FamilyIPv6, packet.FamilyIPv6) && !slices.ContainsFunc(r.Src, onlyIPv4) &&
		!slices.ContainsFunc(r.Dst, onlyIPv4)
}

// matchesTCP reports whether a rule's tests allow TCP packets with or without visible ports.
func (r *Rule) matchesTCP() bool {
	const tcp = 6
	for _, port := range []packet.Field{packet.DPort, packet.SPort} {
		if !r.leaves(port, 0, packet.PortUDP-1) && !r.leaves(port, packet.PortNone, packet.PortNone) {
			return false
		}
	}
	return r.leaves(packet.Proto, tcp, tcp) && r.leaves(packet.ICMP, packet.ICMPNone, packet.ICMPNone)
}

// leaves reports whether a rule allows any value of a field from first to last.
func (r *Rule) leaves(f packet.Field, first, last uint32) bool {
	i := slices.IndexFunc(r.Match, func(m Match) bool { return m.Field == f })
	return i < 0 || slices.ContainsFunc(r.Match[i].Values, func(v Range) bool { return v.First <= last && first <= v.Last })
}

// StructuralText returns a text about checks that are needed although the policy does not enable them. It groups checks with the same reason.
func StructuralText(list []Structural) string {
	var whys []string
	names := map[string][]string{}
	for _, s := range list {
		if names[s.Why] == nil {
			whys = append(whys, s.Why)
		}
		names[s.Why] = append(names[s.Why], s.Check.String())
	}
	var parts []string
	for _, why := range whys {
		parts = append(parts, fmt.Sprintf("%s (%s)", strings.Join(names[why], ", "), why))
	}
	return strings.Join(parts, "; ")
}

// AsksTags returns a text that names the first rule that tests VLAN tags. It returns "" if there is none.
func (p *Program) AsksTags() string {
	for _, r := range p.Rules {
		if slices.ContainsFunc(r.Match, func(m Match) bool { return m.Field == packet.VLAN }) {
			return fmt.Sprintf("rule %q asks for them", r.Name)
		}
	}
	return ""
}
