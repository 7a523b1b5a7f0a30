// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// String returns the program as readable text: the checks, a line for each set of addresses and of names, a line for each rule with its keys in the
// words of the policy, the default, guards and protections, the placement, and the traffic that is not tracked.
func (p *Program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "checks %s\n", checkNames(p.Checks))
	if p.Observed != 0 {
		fmt.Fprintf(&b, "observed checks %s\n", checkNames(p.Observed))
	}
	if p.RepliesFirst {
		fmt.Fprintf(&b, "replies before %s\n", checkNames((p.Checks|p.Observed)&packet.SenderChecks))
	}
	for i := range p.Sets {
		fmt.Fprintf(&b, "set %s: %s\n", p.setName(i), p.Sets[i].content())
	}
	for i := range p.Names {
		if s := &p.Names[i]; s.Name != "" {
			fmt.Fprintf(&b, "names $%s: %s\n", s.Name, s.content(" "))
		}
	}
	for i := range p.Rules {
		fmt.Fprintf(&b, "%s\n", p.ruleLine(&p.Rules[i]))
	}
	fmt.Fprintf(&b, "default: %s\n", p.Default)
	for i := range p.Guards {
		fmt.Fprintf(&b, "%s\n", p.guardLine(&p.Guards[i]))
	}
	for i := range p.Floods {
		fmt.Fprintf(&b, "%s\n", p.floodLine(&p.Floods[i]))
	}
	for i := range p.Protections {
		fmt.Fprintf(&b, "%s\n", p.protectionLine(&p.Protections[i]))
	}
	if p.Placement != "" {
		fmt.Fprintf(&b, "placement: %s\n", p.Placement)
	}
	if words := p.Untracked.words(); words != nil {
		fmt.Fprintf(&b, "untracked: %s\n", strings.Join(words, ", "))
	}
	if p.SampleTraffic > 0 {
		adapts := ""
		if p.SamplesAdapt {
			adapts = " at first"
		}
		fmt.Fprintf(&b, "sample of the traffic: 1/%d%s\n", p.SampleTraffic, adapts)
	}
	return b.String()
}

// words returns the name of each service with its ports, and the words for other traffic, such as loopback.
func (u *Untracked) words() (words []string) {
	for _, s := range u.Services {
		words = append(words, s.Name+" "+Match{packet.DPort, s.Ports}.values())
	}
	for i := range u.Flows {
		words = append(words, u.Flows[i].Name)
	}
	for _, kind := range []struct {
		is   bool
		word string
	}{{u.All, "all"}, {u.Loopback, "loopback"}, {u.Multicast, "multicast"}, {u.Broadcast, "broadcast"}} {
		if kind.is {
			words = append(words, kind.word)
		}
	}
	return words
}

func checkNames(s packet.CheckSet) string {
	if s == 0 {
		return "off"
	}
	var names []string
	for c := range packet.NumChecks {
		if s.Has(c) {
			names = append(names, c.String())
		}
	}
	return strings.Join(names, " ")
}

// setName returns $name, or $number for addresses that are written in rules.
func (p *Program) setName(i int) string {
	if p.Sets[i].Name != "" {
		return "$" + p.Sets[i].Name
	}
	return fmt.Sprintf("$%d", i)
}

// content returns the content of a set as text, or only its beginning if it is long.
func (s *Set) content() string {
	const most = 8
	switch {
	case s.Dynamic != nil && s.Dynamic.Local:
		return fmt.Sprintf("this host's own addresses, at most %d", s.Max)
	case s.Dynamic != nil && s.Dynamic.Timeout != 0:
		return fmt.Sprintf("filled at run time, at most %d entries, each for %s", s.Max, s.Dynamic.Timeout)
	case s.Dynamic != nil:
		return fmt.Sprintf("filled at run time, at most %d entries", s.Max)
	case s.Static == nil || s.Static.IsEmpty():
		return "empty"
	}
	var words []string
	for prefix := range s.Static.Prefixes() {
		if len(words) == most {
			return fmt.Sprintf("%s … (%d entries)", strings.Join(words, " "), s.Entries)
		}
		words = append(words, addrs.PrefixText(prefix))
	}
	return strings.Join(words, " ")
}

func (p *Program) ruleLine(r *Rule) string {
	kind := [...]string{RuleKindRule: "rule", RuleKindService: "service", RuleKindEssential: "built in"}[r.Kind]
	words := []string{fmt.Sprintf("%s %s: %s", kind, r.Name, r.Verdict)}
	for _, m := range r.Src {
		words = append(words, p.addrWord("from", m))
	}
	for _, m := range r.Dst {
		words = append(words, p.addrWord("to", m))
	}
	for _, m := range r.Match {
		words = append(words, m.String())
	}
	words = append(words, p.conditions(r)...)
	words = append(words, r.actions()...)
	if r.Merged > 1 {
		words = append(words, fmt.Sprintf("(%d rules in one)", r.Merged))
	}
	return strings.Join(words, " ")
}

func (p *Program) addrWord(key string, m AddrMatch) string {
	var names []string
	for _, s := range m.Sets {
		names = append(names, p.setName(s))
	}
	return key + operator(m.Not) + strings.Join(names, ",")
}

// String returns the test as key=values, in the words of the policy.
func (m Match) String() string { return m.Field.String() + "=" + m.values() }

// values returns the values as text, or only the first ones if there are many.
func (m Match) values() string {
	return strings.Join(firstWords(m.Values, 16, "ranges", m.rangeWord), ",")
}

// firstWords returns the words for the first most elements of a list and, if there are more, the total number.
func firstWords[T any](list []T, most int, noun string, word func(T) string) (words []string) {
	for _, v := range list[:min(len(list), most)] {
		words = append(words, word(v))
	}
	if len(list) > most {
		words = append(words, fmt.Sprintf("… (%d %s)", len(list), noun))
	}
	return words
}

func (m Match) rangeWord(r Range) string {
	if m.Field == packet.DNS && r == (Range{First: 0, Last: packet.DNSResponse - 1}) {
		return "query"
	}
	first, last := ValueText(m.Field, r.First), ValueText(m.Field, r.Last)
	if first == last {
		return first
	}
	return first + "-" + last
}

// ValueText returns the value of a field in the words of the policy: tcp/80, icmpv6/135/0, ANY, none.
func ValueText(f packet.Field, v uint32) string {
	switch f {
	case packet.DPort, packet.SPort:
		return tagged(v, packet.PortNone, packet.PortUDP, "tcp/", "udp/", func(n uint32) string { return fmt.Sprint(n) })
	case packet.ICMP:
		return tagged(v, packet.ICMPNone, packet.ICMPv6, "icmp/", "icmpv6/", func(n uint32) string {
			return fmt.Sprintf("%d/%d", n>>8, n&0xff)
		})
	case packet.Family:
		return [...]string{packet.FamilyIPv4: "ipv4", packet.FamilyIPv6: "ipv6"}[v]
	case packet.Fragment:
		return [...]string{packet.FragmentNone: "none", packet.FragmentFirst: "first", packet.FragmentLater: "later"}[v]
	case packet.State:
		return [...]string{"new", "established", "related", "invalid", "untracked"}[v]
	case packet.Flags:
		if v == packet.FlagsNone {
			return "no-tcp" // the word none has another meaning here: no flag is set
		}
		return fmt.Sprintf("0x%02x", v)
	case packet.DNS:
		if v < packet.DNSResponse {
			return packet.DNSTypeText(uint16(v))
		}
		return [...]string{"response", "other", "malformed", "none"}[v-packet.DNSResponse]
	case packet.VLAN:
		if v == packet.VLANNone {
			return "none"
		}
	case packet.MSS:
		if v >= packet.MSSMissing {
			return [...]string{"none", "no-syn"}[v-packet.MSSMissing]
		}
	}
	return fmt.Sprint(v)
}

// tagged returns the text of a value whose domain has two parts, for example TCP and UDP ports. The second part begins at base. Values of at least
// none become "none". first and second are the prefixes of the two parts.
func tagged(v, none, base uint32, first, second string, text func(uint32) string) string {
	switch {
	case v >= none:
		return "none"
	case v >= base:
		return second + text(v-base)
	}
	return first + text(v)
}

// FlowText returns a rule's tests of addresses and fields, as key=values. Addresses that are written in the rule are included.
func (p *Program) FlowText(r *Rule) string {
	var words []string
	for key, matches := range map[string][]AddrMatch{"from": r.Src, "to": r.Dst} {
		for _, m := range matches {
			words = append(words, key+operator(m.Not)+strings.Join(p.addressWords(m), ","))
		}
	}
	slices.Sort(words)
	for _, m := range r.Match {
		words = append(words, m.String())
	}
	return strings.Join(words, " ")
}

func (p *Program) addressWords(m AddrMatch) (words []string) {
	for _, s := range m.Sets {
		set := &p.Sets[s]
		if set.Name != "" || set.Static == nil {
			words = append(words, p.setName(s))
			continue
		}
		words = append(words, firstWords(slices.Collect(set.Static.Prefixes()), 4, "prefixes", addrs.PrefixText)...)
	}
	return words
}
