// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/policy"
)

// Range is a range of numbers, from First to Last.
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

// Flow selects the packets of an announcement (RFC 8955, 4.2.2 and RFC 8956). A packet must match all fields. It matches a list if it matches one of
// the values. An empty field matches every packet.
type Flow struct {
	To       netip.Prefix `json:"to"` // the destination: never empty
	From     netip.Prefix `json:"from,omitzero"`
	Proto    []uint8      `json:"proto,omitempty"`
	Port     []Range      `json:"port,omitempty"`     // destination ports
	SPort    []Range      `json:"sport,omitempty"`    // source ports
	ICMP     []Range      `json:"icmp,omitempty"`     // ICMP types
	Length   []Range      `json:"length,omitempty"`   // bytes of the IP packet
	Set      uint8        `json:"set,omitempty"`      // TCP flags that are set
	Unset    uint8        `json:"unset,omitempty"`    // TCP flags that are not set
	Fragment bool         `json:"fragment,omitempty"` // a fragment, the first or a later one
	Rate     float32      `json:"rate,omitempty"`     // bytes a second that pass (RFC 8955, 7.1); 0: no packet passes
}

// maxItems is the largest number of values of a field. With this limit the route of a flow is shorter than 240 bytes. GoBGP and routers have errors
// with longer routes (issue 3596 of osrg/gobgp): see TestLargestFlow.
const maxItems = 5

// Check returns an error for an invalid flow.
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

// String returns the flow as text for people. Equal flows have equal texts, and different flows have different texts.
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
