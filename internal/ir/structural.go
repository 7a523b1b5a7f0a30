package ir

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/packet"
)

// Structural is a check that a program needs whatever its policy says: without it, a packet could hide from a rule what
// the rule asks for, while the receiver finds it.
type Structural struct {
	Check packet.Check
	Why   string // the first rule that depends on it, and its key
}

// readings are the checks that a reading of a packet rests on. A packet that fails one of them has no value of the fields
// behind the place of the failure, though its receiver may find one:
//   - truncated: the chain of IPv6 headers ends where the header says, and the kernel reads on when the payload length is
//     0 in front of a hop-by-hop header (net/ipv6/ip6_input.c, ip6_rcv_core);
//   - tiny-fragment: the header is spread over two fragments (RFC 1858, RFC 3128);
//   - ext-headers, ext-order: the chain goes on beyond the last header that is walked, or has two fragment headers.
//
// behindChain are the fields that lie behind IPv6 extension headers, header those of the L4 header.
var (
	behindChain = []packet.Field{packet.Proto, packet.DPort, packet.SPort, packet.Flags, packet.ICMP, packet.Fragment, packet.DNS, packet.Verified}
	l4Header    = []packet.Field{packet.DPort, packet.SPort, packet.Flags, packet.ICMP, packet.DNS, packet.Verified}
)

// restsOn are the checks that a test of a field depends on. v6 is whether the rule can match IPv6.
func restsOn(f packet.Field, v6 bool) (set packet.CheckSet) {
	if slices.Contains(behindChain, f) && v6 {
		set = set.With(packet.Truncated).With(packet.ExtHeaders).With(packet.ExtOrder)
	}
	if slices.Contains(l4Header, f) || f == packet.Proto && v6 {
		set = set.With(packet.Truncated).With(packet.TinyFragment)
	}
	if f == packet.Length {
		set = set.With(packet.Truncated)
	}
	return set
}

// payloadRests are the checks that a test of payload or of a name depends on.
var payloadRests = restsOn(packet.DPort, true)

// Structural lists the checks that the meaning of the program's rules and of its default rests on, by their number. A
// program that passes every packet needs none. Otherwise vlan-depth holds, as no rule sees a packet behind more tags than
// are read; the others hold when a rule that can match asks for what they protect.
func (p *Program) Structural() (list []Structural) {
	if !p.refuses() {
		return nil
	}
	needed := map[packet.Check]string{packet.VLANDepth: "behind more tags no rule and no default sees IP"}
	need := func(set packet.CheckSet, r *Rule, key string) {
		for c := range packet.NumChecks {
			if set.Has(c) && needed[c] == "" {
				needed[c] = fmt.Sprintf("rule %q asks for %s", r.Name, key)
			}
		}
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		v6 := r.matchesIPv6()
		for _, m := range r.Match {
			need(restsOn(m.Field, v6), r, m.Field.String())
		}
		if len(r.Payload) > 0 || len(r.Names) > 0 {
			need(payloadRests, r, "payload")
		}
	}
	for c := range packet.NumChecks {
		if why, ok := needed[c]; ok {
			list = append(list, Structural{c, why})
		}
	}
	return list
}

// refuses reports whether some packet may not pass.
func (p *Program) refuses() bool {
	return p.Default != Pass || slices.ContainsFunc(p.Rules, func(r Rule) bool {
		return r.Verdict != Pass && !r.Observe || r.Protect > 0
	})
}

// matchesIPv6 reports whether the rule's keys leave it IPv6 packets.
func (r *Rule) matchesIPv6() bool {
	i := slices.IndexFunc(r.Match, func(m Match) bool { return m.Field == packet.Family })
	return i < 0 || r.Match[i].Has(packet.FamilyIPv6)
}

// StructuralText explains checks that hold though a policy does not switch them on: those with one reason together.
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
