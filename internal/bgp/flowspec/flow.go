// SPDX-License-Identifier: Apache-2.0

package flowspec

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
)

// Type is the type of a component of a flow specification (RFC 8955, 4.2.2; RFC 8956, 3).
type Type uint8

// The types. Each has the number of the registry "Flow Spec Component Types".
const (
	Destination Type = 1 + iota
	Source
	Protocol // IPv4 protocol, or the first IPv6 next header that is not an extension header
	Port     // source or destination port
	DestinationPort
	SourcePort
	ICMPType
	ICMPCode
	TCPFlags
	Length // of the IP packet in bytes, header included
	DSCP
	Fragment
	FlowLabel // of IPv6; Floodwall cannot test it
)

var typeNames = [...]string{
	Destination: "destination", Source: "source", Protocol: "protocol", Port: "port", DestinationPort: "destination port",
	SourcePort: "source port", ICMPType: "ICMP type", ICMPCode: "ICMP code", TCPFlags: "TCP flags", Length: "length", DSCP: "DSCP",
	Fragment: "fragment", FlowLabel: "flow label",
}

// String is the name of t in messages.
func (t Type) String() string {
	if int(t) < len(typeNames) && typeNames[t] != "" {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// prefixed reports whether components of the type have a prefix.
func (t Type) prefixed() bool { return t == Destination || t == Source }

// bitmask reports whether values of the type are compared bit by bit.
func (t Type) bitmask() bool { return t == TCPFlags || t == Fragment }

// Component is one condition of a flow specification.
type Component struct {
	Type   Type
	Prefix netip.Prefix // of Destination and Source, masked
	Terms  []byte       // of the other types: operators and values in the wire format
}

// Flow is a flow specification. A packet matches when all components match. The components are in the order of their types, and each type occurs at
// most once.
type Flow struct {
	IPv6       bool // its packets are IPv6
	Components []Component
}

// component returns the component of a type, nil without one.
func (f Flow) component(t Type) *Component {
	for i := range f.Components {
		if f.Components[i].Type == t {
			return &f.Components[i]
		}
	}
	return nil
}

// DestinationPrefix is the prefix of the destination. It is not valid when there is no such component.
func (f Flow) DestinationPrefix() netip.Prefix {
	if c := f.component(Destination); c != nil {
		return c.Prefix
	}
	return netip.Prefix{}
}

// String is a flow specification in one line, for people: "destination 192.0.2.1/32, protocol =17, source port >=1024&<=2048".
func (f Flow) String() string {
	var words []string
	for _, c := range f.Components {
		words = append(words, c.Type.String()+" "+c.condition())
	}
	if words == nil {
		return "any packet"
	}
	return strings.Join(words, ", ")
}

func (c *Component) condition() string {
	if c.Type.prefixed() {
		return c.Prefix.String()
	}
	terms, err := c.terms()
	if err != nil {
		return hex.EncodeToString(c.Terms)
	}
	var b strings.Builder
	for i, t := range terms {
		if i > 0 {
			b.WriteString(map[bool]string{true: "&", false: "|"}[t.and()])
		}
		b.WriteString(t.text(c.Type.bitmask()))
	}
	return b.String()
}
