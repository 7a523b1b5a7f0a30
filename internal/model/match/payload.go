// SPDX-License-Identifier: Apache-2.0

package match

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// PayloadKind is the part of a rule with payload tests that applies to packets of one kind. All packets of a kind have the payload at the same place.
type PayloadKind struct {
	Kind Kind
	Rule ir.Rule // the rule restricted to the kind, without its payload tests
}

// L4Header is the size in bytes of the header before the payload, in UDP and in ICMP.
const L4Header = 8

// PayloadKinds splits a rule with payload tests by kind. Together, the parts match the packets that the rule would match without its payload tests.
func PayloadKinds(r *ir.Rule) (out []PayloadKind) {
	bare := *r
	bare.Payload = nil
	for kind := TCP; kind <= LaterFragment; kind++ {
		part := bare
		for _, m := range kindMatches(kind) {
			part.Match = Also(slices.Clone(part.Match), m)
		}
		if _, never := Impossible(part); !never && !contradicts(&part) {
			out = append(out, PayloadKind{kind, part})
		}
	}
	return out
}

// contradicts reports whether no packet can match a rule because its tests require different protocols or families.
func contradicts(r *ir.Rule) bool {
	return len(Protocols(r)) == 0 || !slices.ContainsFunc(Branches(r), func(b Branch) bool { return len(b.Families) > 0 })
}

// kindMatches returns tests that exactly the packets of a kind pass.
func kindMatches(kind Kind) []ir.Match {
	k := kinds[kind]
	switch kind {
	case TCP, UDP:
		return []ir.Match{{Field: packet.DPort, Values: []ir.Range{k.ports}}}
	case ICMP, ICMPv6:
		return []ir.Match{{Field: packet.ICMP, Values: []ir.Range{k.icmp}}}
	}
	out := []ir.Match{{Field: packet.Proto, Values: k.proto}, {Field: packet.Fragment, Values: []ir.Range{k.fragment}}}
	if kind != LaterFragment {
		out = append(out, ir.Match{Field: packet.Family, Values: ranges.Of(k.family[0])})
	}
	return out
}

// AsksText reports whether a rule searches the payload for text.
func AsksText(r *ir.Rule) bool {
	return slices.ContainsFunc(r.Payload, func(m ir.PayloadMatch) bool { return len(m.Any) > 0 })
}

// NeedsPayload reports whether a rule has a payload test that is not negated. A packet without payload does not match such a rule.
func NeedsPayload(r *ir.Rule) bool {
	return slices.ContainsFunc(r.Payload, func(m ir.PayloadMatch) bool { return !m.Not })
}
