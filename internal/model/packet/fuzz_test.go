// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"reflect"
	"testing"
)

// FuzzDecode checks that any result of Decode has the properties that the types document.
func FuzzDecode(f *testing.F) {
	for _, test := range decodeTests {
		f.Add(mustParse(f, test.line).Frame())
	}
	for _, test := range dnsTests {
		f.Add(dnsFrame(f, u4, test.message))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		p := Decode(frame)
		if p.Failed.Has(OwnSource) || p.Failed>>NumChecks != 0 {
			t.Errorf("fails %b", p.Failed)
		}
		if p.Kind == Malformed && p.Failed.Without(SourceMAC) == 0 {
			t.Error("malformed, but no check fails")
		}
		if p.Kind != IP {
			return
		}
		if !p.Src.IsValid() || !p.Dst.IsValid() || p.Src.Is4() != (p.Value[Family] == FamilyIPv4) {
			t.Errorf("addresses %s > %s", p.Src, p.Dst)
		}
		for field, v := range p.Value {
			if v >= Field(field).Size() {
				t.Errorf("%s is %d", Field(field), v)
			}
		}
		if p.Value[State] != StateNew {
			t.Errorf("a frame tells the state %d", p.Value[State])
		}
		if p.Value[Fragment] == FragmentLater && (p.Value[DPort] != PortNone || p.Value[ICMP] != ICMPNone) {
			t.Error("a later fragment with an L4 header")
		}
		tcp, hasFlags := p.Value[DPort] < PortUDP, p.Value[Flags] != FlagsNone
		if tcp != hasFlags || tcp && p.Value[Proto] != ProtoTCP {
			t.Error("TCP fields contradict each other")
		}
		checkPayload(t, frame, p)
		checkQuery(t, p)
	})
}

// checkPayload checks that L4 is a part of the frame, that Payload is at the end of L4, and which packets have them.
func checkPayload(t *testing.T, frame []byte, p Packet) {
	if !bytes.Contains(frame, p.L4) || !bytes.HasSuffix(p.L4, p.Payload) {
		t.Errorf("L4 %x, payload %x", p.L4, p.Payload)
	}
	if p.L4 == nil && p.Payload != nil || p.Value[Fragment] == FragmentLater && p.L4 != nil {
		t.Errorf("L4 %x of fragment %d, payload %x", p.L4, p.Value[Fragment], p.Payload)
	}
	if before := len(p.L4) - len(p.Payload); p.Payload != nil && before < leastHeader(p) {
		t.Errorf("payload %x begins %d bytes behind the start of L4", p.Payload, before)
	}
}

// leastHeader returns the size in bytes of the shortest L4 header of the packet's protocol. It is 0 if Decode parses no such header.
func leastHeader(p Packet) int {
	switch {
	case p.Value[Flags] != FlagsNone:
		return tcpHeader
	case isUDP(p):
		return udpHeader
	case p.Value[ICMP] != ICMPNone:
		return icmpHeader
	}
	return 0
}

func isUDP(p Packet) bool { return p.Value[DPort] >= PortUDP && p.Value[DPort] < PortNone }

// checkQuery checks that only UDP packets have a DNS message, and that a name is the same after it was written and parsed.
func checkQuery(t *testing.T, p Packet) {
	if isUDP(p) != (p.Value[DNS] != DNSNone) {
		t.Errorf("port %d, DNS %d", p.Value[DPort], p.Value[DNS])
	}
	if p.Value[DNS] >= DNSResponse && !reflect.DeepEqual(p.Query, Query{}) {
		t.Errorf("DNS %d with the query %+v", p.Value[DNS], p.Query)
	}
	name := p.Query.Name()
	wire, err := parseName(name)
	if err != nil || nameText(wire) != name {
		t.Errorf("name %q: %x, %v", name, wire, err)
	}
	if n := len(p.Query.Cookie()); n > 40 || n > 0 && n < 8 {
		t.Errorf("cookie of %d bytes", n)
	}
}

// FuzzParse checks that Parse converts the text of String to the same packet.
func FuzzParse(f *testing.F) {
	for _, test := range canonical {
		f.Add(test.line)
		for _, line := range test.same {
			f.Add(line)
		}
	}
	f.Fuzz(func(t *testing.T, line string) {
		s, err := Parse(line)
		if err != nil {
			return
		}
		again, err := Parse(s.String())
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if again.String() != s.String() || !bytes.Equal(again.Frame(), s.Frame()) || !samePacket(again.Packet(), s.Packet()) {
			t.Errorf("%s\nreads as %s", s, again)
		}
	})
}
