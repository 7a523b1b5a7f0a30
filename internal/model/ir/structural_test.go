// SPDX-License-Identifier: Apache-2.0

package ir_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// TestStructural checks, for each key, on which structural checks rules with this key depend.
func TestStructural(t *testing.T) {
	asks := func(v ir.Verdict, matches ...ir.Match) *ir.Program {
		return &ir.Program{Rules: []ir.Rule{{Name: "r", Match: matches, Verdict: v}}}
	}
	one := func(f packet.Field) ir.Match { return ir.Match{Field: f, Values: []ir.Range{{First: 1, Last: 1}}} }
	ipv4 := ir.Match{Field: packet.Family, Values: []ir.Range{{First: packet.FamilyIPv4, Last: packet.FamilyIPv4}}}
	const behind = "behind more tags no check, rule or default sees IP"
	for _, c := range []struct {
		name    string
		program *ir.Program
		want    string
	}{
		{"everything passes", asks(ir.Pass, one(packet.DPort)), ""},
		{"a check", &ir.Program{Checks: packet.CheckSet(0).With(packet.Land)}, "vlan-depth (" + behind + ")"},
		{"a check of TCP", &ir.Program{Checks: packet.CheckSet(0).With(packet.SYNNoMSS)},
			`truncated, tiny-fragment, ext-headers, ext-order (check syn-no-mss reads the L4 header); vlan-depth (` + behind + ")"},
		{"a check of TCP that counts", &ir.Program{Observed: packet.CheckSet(0).With(packet.SYNNoMSS)}, ""},
		{"a check beside a rule", &ir.Program{Checks: packet.CheckSet(0).With(packet.UDPLength), Rules: asks(ir.Drop, one(packet.DPort)).Rules},
			`truncated, tiny-fragment, ext-headers, ext-order (rule "r" asks for port); vlan-depth (` + behind + ")"},
		{"default: drop", &ir.Program{Default: ir.Drop}, "vlan-depth (" + behind + ")"},
		{"an address", asks(ir.Drop), "vlan-depth (" + behind + ")"},
		{"a port", asks(ir.Drop, one(packet.DPort)),
			`truncated, tiny-fragment, ext-headers, ext-order (rule "r" asks for port); vlan-depth (` + behind + ")"},
		{"a port of IPv4", asks(ir.Drop, one(packet.DPort), ipv4),
			`vlan-depth (` + behind + `); tiny-fragment (rule "r" asks for port)`},
		{"a port of UDP in IPv4", asks(ir.Drop, ir.Match{Field: packet.DPort, Values: []ir.Range{{First: packet.PortUDP, Last: packet.PortUDP}}}, ipv4),
			"vlan-depth (" + behind + ")"},
		{"UDP", asks(ir.Drop, ir.Match{Field: packet.Proto, Values: []ir.Range{{First: 17, Last: 17}}}),
			`truncated, tiny-fragment, ext-headers, ext-order (rule "r" asks for proto); vlan-depth (` + behind + ")"},
		{"no port of UDP", asks(ir.Drop, ir.Match{Field: packet.DPort, Values: []ir.Range{{First: 0, Last: packet.PortNone}}}, ipv4),
			`vlan-depth (` + behind + `); tiny-fragment (rule "r" asks for port)`},
		{"a protocol of IPv4", asks(ir.Drop, one(packet.Proto), ipv4), "vlan-depth (" + behind + ")"},
		{"the length", asks(ir.Drop, one(packet.Length)), `truncated (rule "r" asks for length); vlan-depth (` + behind + ")"},
		{"the fragment", asks(ir.Drop, one(packet.Fragment)),
			`truncated, ext-headers, ext-order (rule "r" asks for fragment); vlan-depth (` + behind + ")"},
		{"the TTL", asks(ir.Reject, one(packet.TTL)), "vlan-depth (" + behind + ")"},
		{"payload", &ir.Program{Rules: []ir.Rule{{Name: "r", Verdict: ir.Drop, Payload: []ir.PayloadMatch{{}}}}},
			`truncated, tiny-fragment, ext-headers, ext-order (rule "r" asks for payload); vlan-depth (` + behind + ")"},
	} {
		if diff := cmp.Diff(c.want, ir.StructuralText(c.program.Structural())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
