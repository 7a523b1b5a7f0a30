package compile

import (
	"slices"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
)

// payloadKind is a part of a rule that asks for payload: that for packets of one kind, whose payload is in one place.
type payloadKind struct {
	kind l4Kind
	rule ir.Rule // without the payload
}

// l4Header are the octets of a UDP header, and of what all ICMP messages begin with, before the payload.
const l4Header = 8

// payloadKinds takes a rule apart by kinds. Together they match what the rule matches, but for its payload.
func payloadKinds(r *ir.Rule) (out []payloadKind) {
	bare := *r
	bare.Payload = nil
	for kind := tcpL4; kind <= laterFragment; kind++ {
		part := bare
		for _, m := range kindMatches(kind) {
			part.Match = also(slices.Clone(part.Match), m)
		}
		if _, never := impossible(part); !never && !contradicts(&part) {
			out = append(out, payloadKind{kind, part})
		}
	}
	return out
}

// contradicts reports whether the fields of a rule belong to different protocols or families.
func contradicts(r *ir.Rule) bool {
	return len(protocols(r)) == 0 || !slices.ContainsFunc(l4Branches(r), func(b branch) bool { return len(b.families) > 0 })
}

// kindMatches are the tests that packets of a kind satisfy, and no others.
func kindMatches(kind l4Kind) []ir.Match {
	k := kinds[kind]
	switch kind {
	case tcpL4, udpL4:
		return []ir.Match{{Field: packet.DPort, Values: []ir.Range{k.ports}}}
	case icmpL4, icmpv6L4:
		return []ir.Match{{Field: packet.ICMP, Values: []ir.Range{k.icmp}}}
	}
	out := []ir.Match{{Field: packet.Proto, Values: k.proto}, {Field: packet.Fragment, Values: []ir.Range{k.fragment}}}
	if kind != laterFragment {
		out = append(out, ir.Match{Field: packet.Family, Values: single(k.family[0])})
	}
	return out
}

// asksText reports whether a rule searches for text.
func asksText(r *ir.Rule) bool {
	return slices.ContainsFunc(r.Payload, func(m ir.PayloadMatch) bool { return len(m.Any) > 0 })
}

// wants reports whether a rule asks for a payload to have something, so that packets without one do not match.
func wants(r *ir.Rule) bool {
	return slices.ContainsFunc(r.Payload, func(m ir.PayloadMatch) bool { return !m.Not })
}
