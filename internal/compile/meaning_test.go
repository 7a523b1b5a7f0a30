// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/subject"
)

// meaning decides packets directly by the policy, key by key, as the documentation describes. It shares no code with Lower, so it can be used to test
// Lower.
type meaning struct {
	policy  *policy.Policy
	members map[string][]netip.Prefix // the addresses of dynamic sets and of local, by the set's name
	rest    packet.CheckSet           // structural checks, which apply to every policy (TestStructural of internal/model/ir)
	pkt     *packet.Packet
}

// decide returns the verdict and the reason.
func (m *meaning) decide() (policy.Verdict, string) {
	failed := m.pkt.Failed
	if m.pkt.Kind == packet.IP && inPrefixes(m.members["local"], m.pkt.Src) {
		failed = failed.With(packet.OwnSource)
	}
	if m.policy.Replies && !m.policy.RepliesTracked && m.isReply() { // if a service is restricted to some sources, this does not apply to replies
		failed = failed.Without(packet.ReflectorSource).Without(packet.BogonSource)
	}
	if check, any := (failed & (m.policy.Checks | m.rest)).First(); any {
		return policy.Drop, check.String()
	}
	if m.pkt.Kind == packet.NotIP {
		return policy.Pass, "not-ip"
	}
	if m.pkt.Kind == packet.IP {
		if verdict, reason, ok := m.rules(); ok {
			return verdict, reason
		}
	}
	return m.policy.Default, "default"
}

// rules returns the decision of the rules, then the services, then the essential rules. ok is false if none of them decides.
func (m *meaning) rules() (verdict policy.Verdict, reason string, ok bool) {
	for _, r := range m.policy.Rules {
		if !slices.Contains(m.keys(r.Match), false) && !slices.Contains(m.keys(r.Not), true) && m.exceeds(r.Connections) {
			return r.Then, r.Name, true
		}
	}
	if verdict, reason, ok := m.tracked(); ok {
		return verdict, reason, true
	}
	for _, s := range m.policy.Services {
		if m.port(s.Port, packet.DPort) && (s.From == nil || m.addr(s.From, m.pkt.Src)) {
			return policy.Pass, s.Name, true
		}
	}
	if name := m.closes(true); name != "" {
		return policy.Drop, name, true
	}
	if m.policy.Replies {
		if verdict, reason, ok := m.replies(); ok {
			return verdict, reason, true
		}
	}
	if name := m.closes(false); name != "" {
		return policy.Drop, name, true
	}
	if name := m.essential(); name != "" && m.policy.Default == policy.Drop {
		return policy.Pass, "essential:" + name, true
	}
	return 0, "", false
}

// closes returns the reason why a packet is dropped if its port belongs to a service that is closed to its source. Otherwise it returns "". If tcp is
// set, it tests services that have only TCP ports. Otherwise it tests all other services.
func (m *meaning) closes(tcp bool) string {
	for _, s := range m.policy.Services {
		udp := slices.ContainsFunc(s.Port, func(p policy.Port) bool { return p.Proto != packet.ProtoTCP })
		if s.From != nil && udp != tcp && m.port(s.Port, packet.DPort) {
			return s.Name + ":others"
		}
	}
	return ""
}

// replies returns the decision of `replies: pass`, and of the rule for fragments, which comes before it.
func (m *meaning) replies() (verdict policy.Verdict, reason string, ok bool) {
	reply := m.isReply()
	if m.pkt.Value[packet.Fragment] == packet.FragmentLater {
		off := slices.ContainsFunc(m.policy.Essential, func(e policy.Essential) bool { return e.Name == "fragments" && e.Off })
		switch {
		case off:
			return policy.Drop, "essential:fragments:off", true
		case reply:
			return policy.Pass, "default:replies:fragments", true
		default:
			return policy.Pass, "essential:fragments" + m.ofFamily(), true
		}
	}
	return policy.Pass, "default:replies", reply
}

// isReply reports whether a packet belongs to an open connection or flow.
func (m *meaning) isReply() bool {
	state := m.pkt.Value[packet.State]
	return state == packet.StateEstablished || state == packet.StateRelated
}

// exceeds reports whether a packet would open a connection above the limit c. It returns true if there is no limit.
func (m *meaning) exceeds(c *policy.ConnLimit) bool {
	if c == nil {
		return true
	}
	if m.pkt.Value[packet.State] != packet.StateNew {
		return false
	}
	of := func(length *policy.PrefixLen, a netip.Addr) netip.Prefix {
		if length == nil {
			return netip.Prefix{}
		}
		bits := length.V6
		if a.Is4() {
			bits = length.V4
		}
		return netip.PrefixFrom(a, bits).Masked()
	}
	return subject.OpenConnections(of(c.From, m.pkt.Src), of(c.To, m.pkt.Dst)) >= int(c.Most)
}

// tracked returns the decision that services with `track: true` make before any service.
func (m *meaning) tracked() (verdict policy.Verdict, reason string, ok bool) {
	any, its := false, false
	for _, s := range m.policy.Services {
		if s.Track == policy.Track {
			any, its = true, its || m.port(s.Port, packet.DPort)
		}
	}
	switch state := m.pkt.Value[packet.State]; {
	case (its || any && !m.policy.Replies) && (state == packet.StateEstablished || state == packet.StateRelated):
		return policy.Pass, "tracked:replies", true
	case its && state == packet.StateInvalid:
		return policy.Drop, "tracked:invalid", true
	}
	return 0, "", false
}

// keys returns a result for each key of k that is set: whether the key's test holds.
func (m *meaning) keys(k policy.Match) (held []bool) {
	add := func(there, holds bool) {
		if there {
			held = append(held, holds)
		}
	}
	v := &m.pkt.Value
	add(k.From != nil, m.addr(k.From, m.pkt.Src))
	add(k.To != nil, m.addr(k.To, m.pkt.Dst))
	add(k.Proto != nil, slices.Contains(k.Proto, uint8(v[packet.Proto])))
	add(k.Port != nil, m.port(k.Port, packet.DPort))
	add(k.SPort != nil, m.port(k.SPort, packet.SPort))
	add(k.Family != nil, slices.Contains(k.Family, v[packet.Family]))
	add(k.Flags != nil, slices.ContainsFunc(k.Flags, func(f policy.Flags) bool {
		return v[packet.Flags] != packet.FlagsNone && uint8(v[packet.Flags])&f.Mask == f.Value
	}))
	add(k.ICMP != nil, slices.ContainsFunc(k.ICMP, m.icmp))
	add(k.Length != nil, inRanges(k.Length, v[packet.Length]))
	add(k.TTL != nil, inRanges(k.TTL, v[packet.TTL]))
	add(k.DSCP != nil, inRanges(k.DSCP, v[packet.DSCP]))
	add(k.MSS != nil, inRanges(k.MSS, v[packet.MSS]))
	add(k.Fragment != nil, slices.Contains(k.Fragment, v[packet.Fragment]))
	add(k.VLAN != nil, inRanges(k.VLAN, v[packet.VLAN]))
	add(k.State != nil, slices.Contains(k.State, v[packet.State]))
	return held
}

func (m *meaning) addr(terms []policy.Addr, a netip.Addr) bool {
	return slices.ContainsFunc(terms, func(t policy.Addr) bool {
		switch {
		case t.Local:
			return inPrefixes(m.members["local"], a)
		case t.Set == "":
			return inRange(t.AddrRange, a)
		}
		i := slices.IndexFunc(m.policy.Sets, func(s policy.Set) bool { return s.Name == t.Set })
		return inPrefixes(m.members[t.Set], a) ||
			slices.ContainsFunc(m.policy.Sets[i].Inline, func(r policy.AddrRange) bool { return inRange(r, a) })
	})
}

func inPrefixes(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

func inRange(r policy.AddrRange, a netip.Addr) bool {
	return r.First.Is4() == a.Is4() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

func inRanges(ranges []policy.Range, v uint32) bool {
	return slices.ContainsFunc(ranges, func(r policy.Range) bool { return r.First <= v && v <= r.Last })
}

func (m *meaning) port(ports []policy.Port, f packet.Field) bool {
	v := m.pkt.Value[f]
	return v != packet.PortNone && slices.ContainsFunc(ports, func(p policy.Port) bool {
		proto := m.pkt.Value[packet.Proto]
		return (p.Proto == 0 || uint32(p.Proto) == proto) && p.First <= uint16(v) && uint16(v) <= p.Last
	})
}

func (m *meaning) icmp(i policy.ICMP) bool {
	v := m.pkt.Value[packet.ICMP]
	return v != packet.ICMPNone && i.V6 == (m.pkt.Value[packet.Family] == packet.FamilyIPv6) &&
		uint32(i.Type) == v>>8&0xff && (i.Code < 0 || uint32(i.Code) == v&0xff)
}

// says reports whether the policy enables a built-in rule or sets its limits. If off is set, it reports whether the policy disables the rule.
func (m *meaning) says(name string, off bool) bool {
	return slices.ContainsFunc(m.policy.Essential, func(e policy.Essential) bool { return e.Name == name && e.Off == off })
}

// ofFamily returns the suffix for the family in the names of built-in rules.
func (m *meaning) ofFamily() string {
	return map[bool]string{true: "-ipv6"}[m.pkt.Value[packet.Family] == packet.FamilyIPv6]
}

// essential returns the name of the built-in rule that passes a packet although the default is drop. It returns "" if there is none.
func (m *meaning) essential() string {
	v := &m.pkt.Value
	v6, has, kind := v[packet.Family] == packet.FamilyIPv6, v[packet.ICMP] != packet.ICMPNone, v[packet.ICMP]>>8&0xff
	udp := func(from, to uint32) bool {
		return v[packet.SPort] == packet.PortUDP+from && v[packet.DPort] == packet.PortUDP+to
	}
	onLink := m.pkt.Src.Is6() && m.pkt.Src.IsLinkLocalUnicast()
	onWire := v[packet.TTL] == 255 && v[packet.ICMP]&0xff == 0 && v[packet.Fragment] == packet.FragmentNone // RFC 4861, RFC 6980
	switch {
	case has && v6 && (kind == 133 || kind == 135 || kind == 136) && onWire:
		return "neighbors"
	case has && v6 && (kind == 134 || kind == 137) && onWire && onLink:
		return "routers"
	case has && v6 && (kind >= 130 && kind <= 132 || kind == 143) && v[packet.TTL] == 1 && (onLink || m.pkt.Src == netip.IPv6Unspecified()):
		return "multicast"
	case !v6 && v[packet.Proto] == 2 && v[packet.TTL] == 1:
		return "multicast-ipv4"
	case has && v6 && kind >= 1 && kind <= 4:
		return "icmpv6-errors"
	case has && !v6 && (kind == 3 || kind == 11 || kind == 12):
		return "icmp-errors"
	case !v6 && udp(67, 68):
		return "dhcp"
	case v6 && udp(547, 546) && onLink:
		return "dhcpv6"
	case v6 && udp(547, 546):
		return "dhcpv6-global"
	case v[packet.Fragment] == packet.FragmentLater && !m.says("fragments", true):
		return "fragments" + m.ofFamily()
	case has && m.says("echo", false) && (v6 && (kind == 128 || kind == 129) || !v6 && (kind == 0 || kind == 8)):
		return "echo" + m.ofFamily()
	}
	return ""
}
