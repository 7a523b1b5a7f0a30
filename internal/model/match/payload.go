package match

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// PayloadKind is a part of a rule that asks for payload: that for packets of one kind, whose payload is in one place.
type PayloadKind struct {
	Kind Kind
	Rule ir.Rule // without the payload
}

// L4Header are the bytes of a UDP header, and of what all ICMP messages begin with, before the payload.
const L4Header = 8

// PayloadKinds takes a rule apart by kinds. Together they match what the rule matches, but for its payload.
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

// contradicts reports whether the fields of a rule belong to different protocols or families.
func contradicts(r *ir.Rule) bool {
	return len(Protocols(r)) == 0 || !slices.ContainsFunc(Branches(r), func(b Branch) bool { return len(b.Families) > 0 })
}

// kindMatches are the tests that packets of a kind satisfy, and no others.
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

// AsksText reports whether a rule searches for text.
func AsksText(r *ir.Rule) bool {
	return slices.ContainsFunc(r.Payload, func(m ir.PayloadMatch) bool { return len(m.Any) > 0 })
}

// NeedsPayload reports whether a rule asks for a payload to have something, so that packets without one do not match.
func NeedsPayload(r *ir.Rule) bool {
	return slices.ContainsFunc(r.Payload, func(m ir.PayloadMatch) bool { return !m.Not })
}
