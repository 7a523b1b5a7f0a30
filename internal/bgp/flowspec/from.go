package flowspec

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/addrs"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/internal/ranges"
)

// maxFlows is how many flow specifications a rule may come to.
const maxFlows = 16

// From makes flow specifications of a rule of a program: a packet matches one of them exactly when the rule's conditions hold. A
// limit becomes a rate of the action. The error names the key of the policy that no flow specification can express. Every rule that is
// announced must have a destination, so one without `to` is an error, too.
func From(p *ir.Program, r *ir.Rule) ([]Flow, Action, error) {
	action, err := actionOf(p, r)
	if err != nil {
		return nil, Action{}, err
	}
	to, err := prefixes(p, r.Dst, "to")
	if err != nil {
		return nil, Action{}, err
	}
	if to == nil {
		return nil, Action{}, fmt.Errorf("to is missing: a flow specification that is announced needs a destination")
	}
	from, err := prefixes(p, r.Src, "from")
	if err != nil {
		return nil, Action{}, err
	}
	if from == nil {
		from = []netip.Prefix{{}}
	}
	var flows []Flow
	for _, dst := range to {
		for _, src := range from {
			if src.IsValid() && src.Addr().Is4() != dst.Addr().Is4() {
				continue
			}
			more, err := flowsOf(r, dst, src)
			if err != nil {
				return nil, Action{}, err
			}
			if flows = append(flows, more...); len(flows) > maxFlows {
				return nil, Action{}, fmt.Errorf("the rule comes to more than %d flow specifications: name fewer addresses or ports", maxFlows)
			}
		}
	}
	if flows == nil {
		return nil, Action{}, fmt.Errorf("no packet matches the rule")
	}
	return flows, action, nil
}

// actionOf is what a rule does with its packets, when a flow specification can say it.
func actionOf(p *ir.Program, r *ir.Rule) (a Action, err error) {
	refused := func(key string) (Action, error) {
		return Action{}, fmt.Errorf("%s cannot be expressed in a flow specification", key)
	}
	switch {
	case r.Observe:
		return refused("observe")
	case r.Verdict == ir.Pass && len(r.Over) > 0:
		return refused("over with then: pass")
	case r.Verdict != ir.Pass && r.Verdict != ir.Drop:
		return refused("then: " + r.Verdict.String())
	case r.Payload != nil:
		return refused("payload")
	case r.Names != nil:
		return refused("dns")
	case len(r.Over) == 0:
		return Action{Drop: r.Verdict == ir.Drop}, nil
	}
	for _, i := range r.Over {
		l := &p.Limits[i]
		if l.Src != nil || l.Dst != nil {
			return refused("over: per")
		}
		rate := l.Rate * uint64(time.Second) / uint64(l.Per)
		switch {
		case rate == 0:
			return refused("over: a rate below one in a second")
		case l.Bits:
			a.Bits = least(a.Bits, rate)
		default:
			a.Packets = least(a.Packets, rate)
		}
	}
	return a, nil
}

// least is the lower of two rates, of which 0 is none.
func least(a, b uint64) uint64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// prefixes are those that a rule names under a key; nil when it has no such key.
func prefixes(p *ir.Program, matches []ir.AddrMatch, key string) (list []netip.Prefix, err error) {
	if len(matches) > 1 {
		return nil, fmt.Errorf("not: %s cannot be expressed in a flow specification", key)
	}
	for _, m := range matches {
		if m.Not {
			return nil, fmt.Errorf("not: %s cannot be expressed in a flow specification", key)
		}
		for _, i := range m.Sets {
			s := &p.Sets[i]
			if s.Fixed() == nil {
				return nil, fmt.Errorf("%s: the content of set %q changes: name prefixes instead", key, s.Name)
			}
			if list, err = appendPrefixes(list, s.Fixed()); err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	return list, nil
}

func appendPrefixes(list []netip.Prefix, s *addrs.Set) ([]netip.Prefix, error) {
	for p := range s.Prefixes() {
		if list = append(list, p); len(list) > maxFlows {
			return nil, fmt.Errorf("more than %d prefixes cannot be announced: name fewer", maxFlows)
		}
	}
	return list, nil
}

// flowsOf are the flow specifications of a rule for one destination and one source, which may be any.
func flowsOf(r *ir.Rule, dst, src netip.Prefix) ([]Flow, error) {
	f := Flow{IPv6: dst.Addr().Is6(), Components: []Component{{Type: Destination, Prefix: dst}}}
	if src.IsValid() {
		f.Components = append(f.Components, Component{Type: Source, Prefix: src})
	}
	flows := []Flow{f}
	for _, m := range r.Match {
		make, ok := makers[m.Field]
		if !ok {
			return nil, fmt.Errorf("%s cannot be expressed in a flow specification", m.Field)
		}
		options, err := make(m.Values, f.IPv6)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Field, err)
		}
		var product []Flow
		for _, before := range flows {
			for _, more := range options {
				if both, ok := before.with(more); ok {
					product = append(product, both)
				}
			}
		}
		flows = product
	}
	if src.IsValid() || r.Sources == nil {
		return flows, nil
	}
	return nil, fmt.Errorf("from cannot be expressed in a flow specification")
}

// with adds components. It reports false when no packet has both, and leaves out what is said already.
func (f Flow) with(more []Component) (Flow, bool) {
	f.Components = slices.Clone(f.Components)
	for _, c := range more {
		if have := f.component(c.Type); have != nil {
			if !slices.Equal(have.Terms, c.Terms) {
				a, _ := have.values(f.IPv6)
				b, _ := c.values(f.IPv6)
				common := ranges.Common(a, b, sizes[c.Type])
				if len(common) == 0 {
					return Flow{}, false
				}
				have.Terms = numericTerms(common, sizes[c.Type])
			}
			continue
		}
		f.Components = append(f.Components, c)
	}
	slices.SortFunc(f.Components, func(a, b Component) int { return int(a.Type) - int(b.Type) })
	return f, true
}

// makers make components of the values of a field: alternatives, each a list of components of which all must hold.
var makers = map[packet.Field]func(values []ranges.Range, ipv6 bool) ([][]Component, error){
	packet.Proto:  numbersOf(Protocol),
	packet.Length: numbersOf(Length),
	packet.DSCP:   numbersOf(DSCP),
	packet.DPort:  portsFor(DestinationPort),
	packet.SPort:  portsFor(SourcePort),
	packet.Family: func(values []ranges.Range, ipv6 bool) ([][]Component, error) {
		if !contains(values, familyNumber(ipv6)) {
			return nil, nil
		}
		return [][]Component{nil}, nil
	},
	packet.Flags:    flagComponents,
	packet.ICMP:     icmpComponents,
	packet.Fragment: fragmentComponents,
}

// numericTerms are terms for values below size.
func numericTerms(values []ranges.Range, size uint32) []byte {
	var terms []term
	for _, r := range values {
		switch {
		case r.First == r.Last:
			terms = append(terms, term{op: opEqual, value: uint64(r.First)})
		case r.Last == size-1:
			terms = append(terms, term{op: opGreater | opEqual, value: uint64(r.First)})
		default:
			terms = append(terms, term{op: opGreater | opEqual, value: uint64(r.First)}, term{op: opAnd | opLess | opEqual, value: uint64(r.Last)})
		}
	}
	return writeTerms(terms)
}

func numbersOf(t Type) func([]ranges.Range, bool) ([][]Component, error) {
	return func(values []ranges.Range, _ bool) ([][]Component, error) {
		if len(values) == 0 {
			return nil, nil
		}
		return [][]Component{{{Type: t, Terms: numericTerms(values, sizes[t])}}}, nil
	}
}

// portsFor makes components of ports: one when TCP and UDP have the same, else one for each of them.
func portsFor(t Type) func([]ranges.Range, bool) ([][]Component, error) {
	return func(values []ranges.Range, _ bool) (options [][]Component, err error) {
		if contains(values, packet.PortNone) {
			return nil, fmt.Errorf("packets without a port cannot be asked for")
		}
		tcp, udp := portsOfEach(values)
		if slices.Equal(tcp, udp) {
			return numbersOf(t)(tcp, false)
		}
		for proto, list := range map[uint32][]ranges.Range{packet.ProtoTCP: tcp, packet.ProtoUDP: udp} {
			if len(list) > 0 {
				options = append(options, []Component{
					{Type: Protocol, Terms: numericTerms(ranges.Of(proto), sizes[Protocol])}, {Type: t, Terms: numericTerms(list, sizes[t])}})
			}
		}
		slices.SortFunc(options, func(a, b []Component) int { return slices.Compare(a[0].Terms, b[0].Terms) })
		return options, nil
	}
}

// flagComponents asks for each value by itself, or for all that have some bits.
func flagComponents(values []ranges.Range, _ bool) ([][]Component, error) {
	if contains(values, packet.FlagsNone) {
		return nil, fmt.Errorf("packets without TCP flags cannot be asked for")
	}
	var terms []term
	for _, c := range cubes(values) {
		all := term{op: opMatch, value: uint64(c.value)}
		none := term{op: opNot, value: uint64(c.mask &^ c.value)}
		switch {
		case c.value == 0 && c.mask == 0:
			terms = append(terms, term{op: opMatch})
		case none.value == 0:
			terms = append(terms, all)
		case all.value == 0:
			terms = append(terms, none)
		default:
			none.op |= opAnd
			terms = append(terms, all, none)
		}
	}
	if terms == nil {
		return nil, nil
	}
	return [][]Component{{{Type: TCPFlags, Terms: writeTerms(terms)}}}, nil
}

// icmpComponents asks for types, with those together that have the same codes.
func icmpComponents(values []ranges.Range, ipv6 bool) (options [][]Component, err error) {
	if contains(values, packet.ICMPNone) {
		return nil, fmt.Errorf("packets that are no ICMP cannot be asked for")
	}
	base := uint32(0)
	if ipv6 {
		base = packet.ICMPv6
	}
	byCodes := map[string][]ranges.Range{}
	codesOf := map[string][]ranges.Range{}
	var order []string
	for kind := range uint32(256) {
		first := base | kind<<8
		codes := ranges.Shift(ranges.Common(values, []ranges.Range{ranges.Span(first, first|255)}, packet.ICMP.Size()), first)
		if len(codes) == 0 {
			continue
		}
		key := fmt.Sprint(codes)
		if byCodes[key] == nil {
			order = append(order, key)
		}
		byCodes[key], codesOf[key] = append(byCodes[key], ranges.Span(kind, kind)), codes
	}
	for _, key := range order {
		components := []Component{{Type: ICMPType, Terms: numericTerms(ranges.Normalize(byCodes[key]), sizes[ICMPType])}}
		if codes := codesOf[key]; codes[0] != ranges.Span(0, 255) {
			components = append(components, Component{Type: ICMPCode, Terms: numericTerms(codes, sizes[ICMPCode])})
		}
		options = append(options, components)
	}
	return options, nil
}

func fragmentComponents(values []ranges.Range, _ bool) ([][]Component, error) {
	terms := map[uint32]term{
		packet.FragmentNone:  {op: opNot, value: fragIs | fragFirst},
		packet.FragmentFirst: {op: opMatch, value: fragFirst},
		packet.FragmentLater: {op: opMatch, value: fragIs},
	}
	var list []term
	for v := range packet.Fragment.Size() {
		if contains(values, v) {
			list = append(list, terms[v])
		}
	}
	if list == nil {
		return nil, nil
	}
	return [][]Component{{{Type: Fragment, Terms: writeTerms(list)}}}, nil
}
