package wire

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/policy"
)

// Range is numbers from the first to the last.
type Range struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

func (r Range) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Flow is which packets an announcement is about (RFC 8955, 4.2.2 and RFC 8956). All fields must hold, and of a list one. An empty
// field holds for every packet.
type Flow struct {
	To       netip.Prefix `json:"to"` // the destination: never empty
	From     netip.Prefix `json:"from,omitzero"`
	Proto    []uint8      `json:"proto,omitempty"`
	Port     []Range      `json:"port,omitempty"`     // of the destination
	SPort    []Range      `json:"sport,omitempty"`    // of the source
	ICMP     []Range      `json:"icmp,omitempty"`     // types
	Length   []Range      `json:"length,omitempty"`   // bytes of the IP packet
	Set      uint8        `json:"set,omitempty"`      // TCP flags that are set
	Unset    uint8        `json:"unset,omitempty"`    // TCP flags that are not set
	Fragment bool         `json:"fragment,omitempty"` // a fragment, the first or a later one
	Rate     float32      `json:"rate,omitempty"`     // bytes a second that pass (RFC 8955, 7.1); 0: none
}

// maxItems is how many values a field has at most. So the route of a flow stays below 240 bytes, from which on routers and GoBGP err
// (issue 3596 of osrg/gobgp): see TestLargestFlow.
const maxItems = 5

// Check says what is wrong with a flow.
func (f *Flow) Check() error {
	const tcp, icmp, icmp6 = 6, 1, 58
	ranges := [][]Range{f.Port, f.SPort, f.ICMP, f.Length}
	switch {
	case !f.To.IsValid() || f.To != f.To.Masked():
		return fmt.Errorf("%s is no destination prefix", f.To)
	case f.From.IsValid() && (f.From != f.From.Masked() || f.From.Addr().Is4() != f.To.Addr().Is4()):
		return fmt.Errorf("the source %s is no prefix of the destination's family", f.From)
	case len(f.Proto) > maxItems || slices.ContainsFunc(ranges, func(l []Range) bool { return len(l) > maxItems }):
		return fmt.Errorf("a flow has at most %d values of each kind", maxItems)
	case slices.ContainsFunc(slices.Concat(ranges...), func(r Range) bool { return r.First > r.Last }):
		return fmt.Errorf("a range ends below its first number")
	case slices.ContainsFunc(f.ICMP, func(r Range) bool { return r.Last > 255 }):
		return fmt.Errorf("a type of ICMP is above 255")
	case len(f.ICMP) > 0 && !slices.Equal(f.Proto, []uint8{icmp}) && !slices.Equal(f.Proto, []uint8{icmp6}):
		return fmt.Errorf("types of ICMP need the protocol icmp or icmpv6")
	case f.Set|f.Unset != 0 && !slices.Equal(f.Proto, []uint8{tcp}):
		return fmt.Errorf("TCP flags need the protocol tcp")
	case f.Set&f.Unset != 0 || f.Set|f.Unset > 0x3f:
		return fmt.Errorf("TCP flags are both set and not set, or unknown")
	case f.Rate < 0 || f.Rate != f.Rate || f.Rate > 1e12:
		return fmt.Errorf("%v is no rate", f.Rate)
	}
	return nil
}

// String is the flow as people read it. Equal flows have equal texts, and others have other texts.
func (f Flow) String() string {
	words := []string{"to " + f.To.String()}
	add := func(name, value string) { words = append(words, name+" "+value) }
	if f.From.IsValid() {
		add("from", f.From.String())
	}
	if len(f.Proto) > 0 {
		add("proto", join(f.Proto, policy.ProtocolName))
	}
	for _, l := range []struct {
		name string
		of   []Range
	}{{"port", f.Port}, {"sport", f.SPort}, {"icmp", f.ICMP}, {"length", f.Length}} {
		if len(l.of) > 0 {
			add(l.name, join(l.of, Range.String))
		}
	}
	if f.Set|f.Unset != 0 {
		add("flags", policy.Flags{Value: f.Set, Mask: f.Set | f.Unset}.String())
	}
	if f.Fragment {
		words = append(words, "fragment")
	}
	if f.Rate > 0 {
		add("over", fmt.Sprintf("%gbit/s", float64(f.Rate)*8))
	}
	return strings.Join(words, " ")
}

func join[T any](list []T, text func(T) string) string {
	var texts []string
	for _, v := range list {
		texts = append(texts, text(v))
	}
	return strings.Join(texts, ",")
}
