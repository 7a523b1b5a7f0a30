package importer

import (
	"strings"

	"github.com/floodwall/floodwall/internal/packet"
)

// option is an option of an iptables rule: how many arguments it has, and what it means.
type option struct {
	args int
	read func(r *ruleReader, not bool, args []string)
}

var options map[string]option

func init() { // in init, because reading a target reads options
	options = map[string]option{
		"-s": {1, (*ruleReader).source}, "-d": {1, (*ruleReader).destination},
		"-p": {1, (*ruleReader).protocol}, "-i": {1, (*ruleReader).inDevice}, "-o": {1, (*ruleReader).outDevice},
		"-f": {0, (*ruleReader).fragment}, "-m": {1, (*ruleReader).match},
		"-j": {1, (*ruleReader).jump}, "-g": {1, (*ruleReader).goTo},
		"--comment": {1, func(r *ruleReader, _ bool, args []string) { r.rule.comment = args[0] }},

		"--sport": {1, ports(packet.SPort, ":")}, "--dport": {1, ports(packet.DPort, ":")},
		"--sports": {1, ports(packet.SPort, ":")}, "--dports": {1, ports(packet.DPort, ":")},
		"--ports":       {1, (*ruleReader).eitherPort},
		"--tcp-flags":   {2, (*ruleReader).tcpFlags},
		"--syn":         {0, func(r *ruleReader, not bool, _ []string) { r.tcpFlags(not, []string{"fin,syn,rst,ack", "syn"}) }},
		"--icmp-type":   {1, (*ruleReader).icmpType},
		"--icmpv6-type": {1, (*ruleReader).icmpType},

		"--src-range": {1, (*ruleReader).source}, "--dst-range": {1, (*ruleReader).destination},
		"--src-type": {1, addrType(cond.from)}, "--dst-type": {1, addrType(cond.to)},
		"--ctstate": {1, (*ruleReader).state}, "--state": {1, (*ruleReader).state},
		"--match-set":      {2, (*ruleReader).matchSet},
		"--return-nomatch": {0, nothing}, "--update-counters": {0, nothing}, "--update-subcounters": {0, nothing},

		"--length": {1, spanOf(packet.Length, 65535)},
		"--dscp":   {1, spanOf(packet.DSCP, 63)},
		"--ttl-eq": {1, spanOf(packet.TTL, 255)}, "--hl-eq": {1, spanOf(packet.TTL, 255)},
		"--ttl-lt": {1, hops(below)}, "--hl-lt": {1, hops(below)},
		"--ttl-gt": {1, hops(above)}, "--hl-gt": {1, hops(above)},
	}
}

func nothing(*ruleReader, bool, []string) {}

// modules are the extensions whose options are read. All others make a rule one without equal.
var modules = map[string]bool{
	"comment": true, "tcp": true, "udp": true, "icmp": true, "icmp6": true, "multiport": true, "iprange": true,
	"addrtype": true, "conntrack": true, "state": true, "set": true, "length": true, "ttl": true, "hl": true, "dscp": true,
}

// match begins an extension.
func (r *ruleReader) match(_ bool, args []string) {
	r.module = args[0]
	if modules[r.module] {
		return
	}
	r.unknown("-m " + r.module)
	r.skip(func(w string) bool { return w == "-m" || w == "-j" || w == "-g" })
}

func (r *ruleReader) source(not bool, args []string) { r.address(not, args[0], cond.from) }

func (r *ruleReader) destination(not bool, args []string) { r.address(not, args[0], cond.to) }

// test narrows all alternatives by an address.
func (r *ruleReader) test(not bool, t addrTest, side func(cond, addrTest) cond) {
	if not {
		t = t.not()
	}
	r.each(func(c cond) cond { return side(c, t) })
}

func (r *ruleReader) address(not bool, text string, side func(cond, addrTest) cond) {
	set, ok := parseAddrs(text)
	if !ok {
		r.unknown("address " + text)
		return
	}
	r.test(not, addrTest{in: set}, side)
}

// protocol reads -p.
func (r *ruleReader) protocol(not bool, args []string) {
	n, ok := protoNumber(args[0])
	switch {
	case args[0] == "all" || ok && n == 0:
		return
	case !ok:
		r.unknown("protocol " + args[0])
		return
	}
	v := only(n)
	if not {
		v = v.not(packet.Proto)
	} else {
		r.protos = []uint32{n}
	}
	r.each(func(c cond) cond { return c.with(packet.Proto, v) })
}

// inDevice reads -i; iptables writes + for the * of others.
func (r *ruleReader) inDevice(not bool, args []string) {
	name := args[0]
	if strings.HasSuffix(name, "+") {
		name = strings.TrimSuffix(name, "+") + "*"
	}
	r.each(func(c cond) cond {
		c.devices = append(c.devices, deviceTest{[]string{name}, not})
		return c
	})
}

func (r *ruleReader) outDevice(bool, []string) { r.unknown("-o, the device a packet leaves by") }

// multiply makes alternatives of each alternative and one of conds.
func (r *ruleReader) multiply(conds []cond) {
	var out []cond
	for _, a := range r.rule.alts {
		for _, c := range conds {
			out = append(out, a.and(c))
		}
	}
	r.rule.alts = out
}

// addrType reads kinds of addresses.
func addrType(side func(cond, addrTest) cond) func(*ruleReader, bool, []string) {
	return func(r *ruleReader, not bool, args []string) {
		set, narrower, ok := addrKinds(strings.ToLower(args[0]))
		if !ok || narrower && not {
			r.unknown("address type " + args[0])
			return
		}
		r.test(not, addrTest{in: set}, side)
		if narrower {
			r.each(func(c cond) cond { return c.narrowed(directedBroadcast) })
		}
	}
}

// directedBroadcast says what is left out where broadcasts are meant.
const directedBroadcast = "of broadcasts the policy knows 255.255.255.255 only, not those of the host's networks"

// matchSet reads a set's name and which of the packet's addresses and ports are looked up.
func (r *ruleReader) matchSet(not bool, args []string) {
	s := r.file.private[args[0]]
	if s == nil {
		r.unknown("set " + args[0] + ", which no file has: give the output of ipset save, too")
		return
	}
	alts, why := s.lookup(strings.Split(args[1], ","), not)
	if why != "" {
		r.unknown("set " + s.name + ", " + why)
		return
	}
	r.multiply(alts)
}
