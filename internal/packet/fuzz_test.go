package packet

import (
	"bytes"
	"testing"
)

// FuzzDecode holds whatever comes out of Decode against what the types promise.
func FuzzDecode(f *testing.F) {
	for _, test := range decodeTests {
		f.Add(mustParse(f, test.line).Frame())
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
		if tcp != hasFlags || tcp && p.Value[Proto] != protoTCP {
			t.Error("TCP fields contradict each other")
		}
	})
}

// FuzzParse checks that what String writes is read as the same packet.
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
