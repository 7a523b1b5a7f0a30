// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// test is one match key of a rule with its value. It can test whether a packet passes.
type test struct {
	key  string // key of the policy; "payload.at", "dns.type" and "dns.name" are parts of such a key
	text string // the key in the policy's notation
	put  func(*policy.Match)
	has  func(s *Sample) bool
}

func newTest(key string, put func(*policy.Match), has func(*Sample) bool) test {
	var m policy.Match
	put(&m)
	return test{key, m.Words()[0], put, has}
}

// valuesTest returns a test of a field for values.
func valuesTest(f packet.Field, values []ir.Range) test {
	m := ir.Match{Field: f, Values: values}
	return newTest(f.String(), func(to *policy.Match) { to.Ask(f, values) }, func(s *Sample) bool { return m.Has(s.Value[f]) })
}

// exactly returns a test of a field for one value.
func exactly(f packet.Field, v uint32) test { return valuesTest(f, []ir.Range{{First: v, Last: v}}) }

// valuesText returns values of a field in the policy's notation: one value, or a list.
func valuesText(f packet.Field, values []ir.Range) string {
	var m policy.Match
	m.Ask(f, values)
	return strings.TrimPrefix(m.Words()[0], f.String()+": ")
}

// ValueText returns a value of a field in the policy's notation. "none" means that a packet does not have the field.
func ValueText(f packet.Field, v uint32) string {
	switch {
	case f == packet.Flags && v == packet.FlagsNone, (f == packet.DPort || f == packet.SPort) && v == packet.PortNone,
		f == packet.ICMP && v == packet.ICMPNone:
		return "none"
	case f == packet.Flags:
		value, _, _ := strings.Cut(policy.Flags{Value: uint8(v)}.String(), "/")
		return value
	}
	return valuesText(f, []ir.Range{{First: v, Last: v}})
}

// flagsMask contains the TCP flags that are compared. The congestion control flags are left out: they vary with the path, and iptables has no match
// for them.
const flagsMask = 0x3f

// flagsTest returns a test that exactly these of the compared flags are set.
func flagsTest(flags uint32) test {
	put := func(m *policy.Match) { m.Flags = []policy.Flags{{Value: uint8(flags & flagsMask), Mask: flagsMask}} }
	return newTest("flags", put, func(s *Sample) bool {
		return s.Value[packet.Flags] != packet.FlagsNone && s.Value[packet.Flags]&flagsMask == flags&flagsMask
	})
}

// prefixTest returns a test for a source or destination in any of the prefixes.
func prefixTest(key string, prefixes []netip.Prefix) test {
	var list []policy.Addr
	for _, p := range prefixes {
		list = append(list, policy.AddrOf(p))
	}
	put := func(m *policy.Match) {
		if key == "from" {
			m.From = list
		} else {
			m.To = list
		}
	}
	return newTest(key, put, func(s *Sample) bool {
		a := s.address(key)
		return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
	})
}

// address returns the source for the key `from`, and the destination for the key `to`.
func (s *Sample) address(key string) netip.Addr {
	if key == "to" {
		return s.Dst
	}
	return s.Src
}

// bytesTest returns a test for bytes at an offset in the payload, or in the L4 header.
func bytesTest(header bool, offset int, value []byte) test {
	at := policy.At{Header: header, Offset: uint16(offset), Value: value, Mask: bytes.Repeat([]byte{0xff}, len(value))}
	put := func(m *policy.Match) {
		if m.Payload == nil {
			m.Payload = &policy.Payload{}
		}
		m.Payload.At = append(m.Payload.At, at)
	}
	return newTest("payload.at", put, func(s *Sample) bool { return bytes.HasPrefix(s.bytes(header, offset), value) })
}

// bytes returns the captured bytes from an offset on.
func (s *Sample) bytes(header bool, offset int) []byte {
	b := s.L4[:min(s.seen, len(s.L4))]
	if !header {
		before := len(s.L4) - len(s.Payload)
		if s.Payload == nil || len(b) < before {
			return nil
		}
		b = b[before:]
	}
	if offset > len(b) {
		return nil
	}
	return b[offset:]
}

// dnsPort is the port of DNS. Names and types are read only on this port, because bytes that look like a DNS message may be something else on other
// ports.
const dnsPort = packet.PortUDP + 53

// nameTest returns a test for a DNS query for a name or a subdomain of the name.
func nameTest(name string) test {
	set := ir.NameSet{Names: []string{name}}
	put := func(m *policy.Match) {
		m.DNS = &policy.DNS{Types: dnsOf(m).Types, Names: []policy.DNSName{{Name: name}}}
	}
	return newTest("dns.name", put, func(s *Sample) bool { return isQuery(s) && set.Has(s.name) })
}

// typeTest returns a test for a DNS query type.
func typeTest(kind uint32) test {
	put := func(m *policy.Match) {
		m.DNS = &policy.DNS{Types: []policy.Range{{First: kind, Last: kind}}, Names: dnsOf(m).Names}
	}
	return newTest("dns.type", put, func(s *Sample) bool { return isQuery(s) && s.Value[packet.DNS] == kind })
}

// dnsOf returns the tests of DNS messages that a match already has.
func dnsOf(m *policy.Match) policy.DNS {
	if m.DNS == nil {
		return policy.DNS{}
	}
	return *m.DNS
}

func isQuery(s *Sample) bool {
	return s.Value[packet.DPort] == dnsPort && s.Value[packet.DNS] < packet.DNSResponse
}
