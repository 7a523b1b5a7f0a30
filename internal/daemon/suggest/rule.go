package suggest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// order is that of the keys in a rule.
var order = []string{"family", "from", "to", "proto", "fragment", "sport", "port", "flags", "icmp", "length", "ttl", "dscp", "dns", "payload"}

// text is a rule in one line, as it stands under rules.
func (c conjunction) text(name string) string {
	parts := map[string][]string{}
	for _, t := range c.tests {
		key, part, _ := strings.Cut(t.key, ".")
		if part == "type" || part == "name" {
			parts[key] = append(parts[key], part+": "+t.value)
		} else {
			parts[key] = append(parts[key], t.value)
		}
	}
	if parts["dns"] != nil && parts["port"] == nil {
		parts["port"] = []string{"udp/53"}
	}
	if parts["sport"] != nil || parts["port"] != nil || parts["flags"] != nil || parts["icmp"] != nil {
		delete(parts, "proto") // these say it
	}
	line := "{name: " + name
	for _, key := range order {
		switch list := parts[key]; {
		case list == nil:
		case key == "dns":
			line += ", dns: {" + strings.Join(list, ", ") + "}"
		case key == "payload":
			line += ", payload: {at: " + listText(list) + "}"
		default:
			line += ", " + key + ": " + list[0]
		}
	}
	return line + ", observe: true, then: drop}"
}

// matcher is a rule as the policy's language means it.
type matcher struct{ program *ir.Program }

// compiled reads a rule as a policy would. It is an error when the language has no such rule, or when nothing can match it.
func compiled(rule string) (*matcher, error) {
	p, err := policy.Parse("suggested rule", []byte("devices: [eth0]\ndefault: pass\nchecks: off\nrules:\n  - "+rule+"\n"))
	if err != nil {
		return nil, err
	}
	program, _, err := compile.Lower(p)
	if err != nil {
		return nil, err
	}
	for _, r := range program.Rules {
		if field, impossible := match.Impossible(r); impossible {
			return nil, fmt.Errorf("rule %s: no packet has such a %v", rule, field)
		}
	}
	return &matcher{program}, nil
}

// has reports whether the rule matches a packet, by ir.Eval.
func (m *matcher) has(s *Sample) bool { return m.matches(&s.Packet) }

// count counts the samples that any of some rules matches.
func count(rules []*matcher, samples []Sample) (n int) {
	for i := range samples {
		if slices.ContainsFunc(rules, func(m *matcher) bool { return m.has(&samples[i]) }) {
			n++
		}
	}
	return n
}

// Signature is a rule of a Result, as the policy's language means it.
type Signature struct{ rule, header *matcher }

// ReadSignature reads the text of a rule.
func ReadSignature(rule string) (*Signature, error) {
	m, err := compiled(rule)
	if err != nil {
		return nil, err
	}
	return &Signature{m, m.header()}, nil
}

// Has reports whether the rule matches a sample, by ir.Eval.
func (g *Signature) Has(s *Sample) bool { return g.rule.matches(&s.Packet) }

// matches reports whether the rule matches a packet, whether it observes or drops.
func (m *matcher) matches(p *packet.Packet) bool {
	matched := false
	verdict, _ := m.program.Eval(p, ir.World{Observe: func(r ir.Reason) { matched = matched || r.Kind == ir.ReasonRule }})
	return matched || verdict == ir.Drop
}

// shared are the fields whose values honest newcomers share with an attack: where packets come from and go to, and the shape that every
// client of a service has.
var shared = []packet.Field{packet.Family, packet.Proto, packet.DPort, packet.Length, packet.TTL, packet.Flags}

// Vague reports whether the rule asks for nothing but addresses, a destination port, a protocol, TCP flags, a length or a TTL. A crowd of
// newcomers can have these in common: clients of one provider, or of one program.
func (g *Signature) Vague() bool {
	return !slices.ContainsFunc(g.rule.program.Rules, func(r ir.Rule) bool {
		return r.Names != nil || r.Payload != nil || slices.ContainsFunc(r.Match, func(m ir.Match) bool { return !slices.Contains(shared, m.Field) })
	})
}

// TCP reports whether the rule can match segments of open TCP connections at all.
func (g *Signature) TCP() bool {
	return slices.ContainsFunc(g.header.program.Rules, func(r ir.Rule) bool {
		return !slices.ContainsFunc(r.Match, func(t ir.Match) bool { return !mayBeTCP(t) })
	})
}

// mayBeTCP reports whether segments of an open connection can pass a test of the header.
func mayBeTCP(t ir.Match) bool {
	switch t.Field {
	case packet.Proto:
		return t.Has(packet.ProtoTCP)
	case packet.SPort, packet.DPort:
		return t.Values[0].First < packet.PortUDP
	case packet.Flags:
		return ofOpen(t)
	case packet.ICMP:
		return t.Has(packet.ICMPNone)
	case packet.DNS:
		return t.Has(packet.DNSNone)
	}
	return true
}

// Bits of the TCP flags.
const flagSYN, flagACK = 0x02, 0x10

// MayMatch reports whether the rule can match a segment of an open TCP connection that comes from one address and port to another. Only
// addresses, ports and flags are compared: the other fields and the bytes of a connection may be any a moment later.
func (g *Signature) MayMatch(from, to netip.AddrPort) bool {
	p := packet.Packet{Kind: packet.IP, Src: from.Addr(), Dst: to.Addr()}
	p.Value[packet.Proto], p.Value[packet.Flags], p.Value[packet.ICMP], p.Value[packet.DNS] = packet.ProtoTCP, flagACK, packet.ICMPNone, packet.DNSNone
	p.Value[packet.SPort], p.Value[packet.DPort] = uint32(from.Port()), uint32(to.Port())
	if from.Addr().Is6() {
		p.Value[packet.Family] = packet.FamilyIPv6
	}
	return g.header.matches(&p)
}

// header is the rule without its tests of fields that differ between segments of one TCP connection. A test of flags that some segment of an
// open connection passes is one of those.
func (m *matcher) header() *matcher {
	program := *m.program
	program.Rules = slices.Clone(program.Rules)
	for i := range program.Rules {
		r := &program.Rules[i]
		r.Names, r.Payload = nil, nil
		r.Match = slices.DeleteFunc(slices.Clone(r.Match), func(t ir.Match) bool {
			switch t.Field {
			case packet.Family, packet.Proto, packet.SPort, packet.DPort:
				return false
			case packet.Flags:
				return ofOpen(t)
			}
			return t.Field != packet.ICMP && t.Field != packet.DNS
		})
	}
	return &matcher{&program}
}

// ofOpen reports whether flags that segments of an open connection have, ACK without SYN, pass a test.
func ofOpen(t ir.Match) bool {
	for flags := range uint32(packet.FlagsNone) {
		if flags&flagACK != 0 && flags&flagSYN == 0 && t.Has(flags) {
			return true
		}
	}
	return false
}
