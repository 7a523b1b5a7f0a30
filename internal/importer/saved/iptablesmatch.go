// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// options are the options that have an equivalent, by extension and name. The functions parse each option alone.
var options = map[string]func(r *iptablesRuleReader, not bool, args []string){
	"comment--comment":  func(r *iptablesRuleReader, _ bool, args []string) { r.rule.Comment = args[0] },
	"multiport--sports": ports(packet.SPort, ":"), "multiport--source-ports": ports(packet.SPort, ":"),
	"multiport--dports": ports(packet.DPort, ":"), "multiport--destination-ports": ports(packet.DPort, ":"),
	"multiport--ports": (*iptablesRuleReader).eitherPort,
	"tcp--tcp-flags":   (*iptablesRuleReader).tcpFlags,
	"tcp--syn": func(r *iptablesRuleReader, not bool, _ []string) {
		r.tcpFlags(not, []string{"fin,syn,rst,ack", "syn"})
	},
	"icmp--icmp-type": (*iptablesRuleReader).icmpType, "icmp6--icmpv6-type": (*iptablesRuleReader).icmpType,
	"icmpv6--icmpv6-type": (*iptablesRuleReader).icmpType, "ipv6-icmp--icmpv6-type": (*iptablesRuleReader).icmpType,

	"iprange--src-range": ofAddress(Cond.From), "iprange--dst-range": ofAddress(Cond.To),
	"addrtype--src-type": addrType(Cond.From), "addrtype--dst-type": addrType(Cond.To),
	"state--state":   (*iptablesRuleReader).state,
	"set--match-set": (*iptablesRuleReader).matchSet, "set--update-counters": nothing,
	"set--update-subcounters": nothing,

	"length--length": spanOf(packet.Length, 65535), "dscp--dscp": spanOf(packet.DSCP, 63), "dscp--dscp-class": asks(packet.DSCP, "DSCP class", class),
	"tcpmss--mss": (*iptablesRuleReader).segmentSize,
	"tos--tos":    (*iptablesRuleReader).tos,
	"ttl--ttl-eq": spanOf(packet.TTL, 255), "ttl--ttl": spanOf(packet.TTL, 255), "hl--hl-eq": spanOf(packet.TTL, 255),
	"ttl--ttl-lt": hops(Below), "hl--hl-lt": hops(Below), "ttl--ttl-gt": hops(above), "hl--hl-gt": hops(above),
	"rt--rt-type": (*iptablesRuleReader).routing,
	"mark--mark":  mark("-m mark"), "connmark--mark": mark("-m connmark"),
}

func init() {
	for _, proto := range []string{"tcp", "udp"} {
		for _, name := range []string{"--sport", "--source-port"} {
			options[proto+name] = ports(packet.SPort, ":")
		}
		for _, name := range []string{"--dport", "--destination-port"} {
			options[proto+name] = ports(packet.DPort, ":")
		}
	}
}

func nothing(*iptablesRuleReader, bool, []string) {}

func ofAddress(side func(Cond, AddrTest) Cond) func(*iptablesRuleReader, bool, []string) {
	return func(r *iptablesRuleReader, not bool, args []string) { r.address(not, args[0], side) }
}

// test narrows all alternatives by a test of an address.
func (r *iptablesRuleReader) test(not bool, t AddrTest, side func(Cond, AddrTest) Cond) {
	if not {
		t = t.Not()
	}
	r.each(func(c Cond) Cond { return side(c, t) })
}

func (r *iptablesRuleReader) address(not bool, text string, side func(Cond, AddrTest) Cond) {
	set, ok := ParseAddrs(text)
	if !ok {
		r.unknown("address " + text)
		return
	}
	r.test(not, AddrTest{In: set}, side)
}

// protocol parses -p.
func (r *iptablesRuleReader) protocol(not bool, args []string) {
	n, ok := ProtoNumber(args[0])
	switch {
	case !not && (args[0] == "all" || ok && n == 0):
		return
	case !ok:
		r.unknown("protocol " + args[0])
		return
	}
	if !not {
		r.protos = []uint32{n}
	}
	r.ask(packet.Proto, Only(n), not)
}

// inDevice parses -i; iptables writes + for the wildcard *.
func (r *iptablesRuleReader) inDevice(not bool, args []string) {
	name := args[0]
	if strings.HasSuffix(name, "+") {
		name = strings.TrimSuffix(name, "+") + "*"
	}
	r.each(func(c Cond) Cond {
		c.Devices = append(c.Devices, DeviceTest{Names: []string{name}, Not: not})
		return c
	})
}

// routing parses the type of a routing header, or a range of types.
func (r *iptablesRuleReader) routing(not bool, args []string) {
	if not || args[0] != "0" && args[0] != "0:0" {
		r.unknown("-m rt")
		return
	}
	r.each(func(c Cond) Cond { c.Routed = true; return c })
}

// outDevice parses -o.
func (r *iptablesRuleReader) outDevice(not bool, name string) { r.unknown(leavesBy(not, name)) }

// addrType parses kinds of addresses.
func addrType(side func(Cond, AddrTest) Cond) func(*iptablesRuleReader, bool, []string) {
	return func(r *iptablesRuleReader, not bool, args []string) {
		set, narrower, ok := AddrKinds(strings.ToLower(args[0]))
		if !ok || narrower && not {
			r.unknown("address type " + args[0])
			return
		}
		r.test(not, AddrTest{In: set}, side)
		if narrower {
			r.each(func(c Cond) Cond { return c.Narrowed(DirectedBroadcast) })
		}
	}
}

// countries parses country codes. For iptables, the addresses of countries come from files of this host; for the policy, they come from a database.
func (r *iptablesRuleReader) countries(t Token) {
	codes := strings.Split(strings.ToUpper(t.Args[0]), ",")
	side := Cond.From
	if strings.HasPrefix(t.Name, "--d") {
		side = Cond.To
	}
	switch rs := r.file.rs; {
	case slices.ContainsFunc(codes, func(c string) bool { return len(c) != 2 || c[0] < 'A' || c[0] > 'Z' || c[1] < 'A' || c[1] > 'Z' }):
		r.unknown("-m geoip " + t.Args[0] + ", which is no code of a country")
	case rs.Geo == "":
		r.unknown("-m geoip, for which import needs a database of countries: give one with --geo FILE")
	default:
		r.test(t.Not, AddrTest{In: &AddrSet{Sets: []*Set{rs.Country(codes)}}}, side)
		r.file.report.Note(r.rule.At, "-m geoip: the policy has the countries' addresses from %s, and not from the files of xt_geoip", rs.Geo)
	}
}

// matchSet parses a set's name, and the list of the packet's addresses and ports that are looked up in the set.
func (r *iptablesRuleReader) matchSet(not bool, args []string) {
	s := r.file.private[args[0]]
	if s == nil {
		r.unknown("set " + args[0] + ", which no file has: give the output of ipset save, too")
		return
	}
	alts, why := s.Lookup(strings.Split(args[1], ","), not)
	if why != "" {
		r.unknown("set " + s.Name + ", " + why)
		return
	}
	r.rule.Narrow(alts)
}
