package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/text/wording"
)

const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// protoNumber holds the protocols that have a name in the policy (IANA, Assigned Internet Protocol Numbers).
var protoNumber = map[string]uint8{
	"icmp": protoICMP, "igmp": 2, "ipip": 4, "tcp": protoTCP, "udp": protoUDP, "dccp": 33, "ipv6": 41, "gre": 47,
	"esp": 50, "ah": 51, "icmpv6": protoICMPv6, "eigrp": 88, "ospf": 89, "pim": 103, "vrrp": 112, "l2tp": 115,
	"sctp": 132, "udplite": 136,
}

// ProtocolName is the name that a protocol has in the policy, or its number when it has none.
func ProtocolName(number uint8) string {
	for name, n := range protoNumber {
		if n == number {
			return name
		}
	}
	return strconv.Itoa(int(number))
}

// ParseProtocol reads the name or the number of a protocol, as the key proto has it.
func ParseProtocol(text string) (uint8, error) {
	n, f := proto(text)
	if f != nil {
		return 0, f
	}
	return n[0], nil
}

func proto(text string) ([]uint8, *flaw) {
	if n, ok := protoNumber[text]; ok {
		return []uint8{n}, nil
	}
	n, f := number(text, 255)
	if f != nil {
		g := wordFlaw("tcp, udp, icmp, another protocol's name, or a number from 0 to 255", text, sorted(protoNumber))
		if g.hint == "" {
			g.hint = f.hint
		}
		return nil, g
	}
	return []uint8{uint8(n)}, nil
}

// wordFlaw is the flaw of a text that is none of words; what describes them.
func wordFlaw(what, text string, words []string) *flaw {
	f := want(what, text)
	switch near := wording.Nearest(text, words); {
	case near != "":
		f.hintf("did you mean %q?", near)
	case slices.Contains([]string{"any", "all", "*", "both"}, strings.ToLower(text)):
		f.hintf("leave the key out, and every value matches")
	}
	return f
}

// choice is a reader of a key whose values are the keys of meanings.
func choice[T any](meanings map[string]T) func(string) (T, *flaw) {
	words := sorted(meanings)
	return func(text string) (T, *flaw) {
		v, ok := meanings[text]
		if !ok {
			return v, wordFlaw(wording.Either(words), text, words)
		}
		return v, nil
	}
}

// choices is choice for a key whose words stand for several alternatives each.
func choices[T any](meanings map[string][]T) func(string) ([]T, *flaw) { return choice(meanings) }

func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

var (
	readFamily  = choices(familyWords)
	familyWords = map[string][]uint32{"ipv4": {packet.FamilyIPv4}, "ipv6": {packet.FamilyIPv6}}

	readFragment  = choices(fragmentWords)
	fragmentWords = map[string][]uint32{
		"none": {packet.FragmentNone}, "false": {packet.FragmentNone},
		"first": {packet.FragmentFirst}, "later": {packet.FragmentLater},
		"true": {packet.FragmentFirst, packet.FragmentLater},
	}
)

// stateWords are the states of conntrack.
var stateWords = map[string][]uint32{
	"new": {packet.StateNew}, "established": {packet.StateEstablished}, "related": {packet.StateRelated},
	"invalid": {packet.StateInvalid}, "untracked": {packet.StateUntracked},
}

// readState reads a state of conntrack.
func readState(text string) ([]uint32, *flaw) {
	states, f := choices(stateWords)(text)
	if text == "tracked" {
		f.hintf("write not: {state: untracked}") // not what is nearest by its letters, which is the opposite
	}
	return states, f
}

// placementWords are what `placement` may say.
var placementWords = map[string]Placement{
	"auto": "auto", "earliest": "earliest", "xdp": "xdp", "ingress": "ingress", "raw": "raw", "filter": "filter",
}

// placementHabits are words by which other tools call the stages.
var placementHabits = map[string]string{
	"prerouting": "raw", "input": "filter", "forward": "filter", "netdev": "ingress", "tc": "ingress", "driver": "xdp",
	"first": "earliest", "early": "earliest", "none": "auto", "default": "auto",
}

func readPlacement(text string) (Placement, *flaw) {
	at, f := choice(placementWords)(text)
	if ours, ok := placementHabits[strings.ToLower(text)]; ok {
		f.hintf("write %s", ours)
	}
	return at, f
}

// bootWords are what `boot` may say; true is closed.
var bootWords = map[string]bool{"open": false, "closed": true}

// switches are the ways to say on and off; YAML writers know them all.
var switches = map[string]bool{"on": true, "yes": true, "true": true, "off": false, "no": false, "false": false}

// dscpNumber holds the names of code points: class selectors (RFC 2474), assured forwarding (RFC 2597), expedited
// forwarding (RFC 3246), voice-admit (RFC 5865), lower effort (RFC 8622), best effort.
var dscpNumber = func() map[string]uint32 {
	m := map[string]uint32{"be": 0, "ef": 46, "va": 44, "le": 1}
	for class := range uint32(8) {
		m[fmt.Sprintf("cs%d", class)] = class << 3
	}
	for class := range uint32(4) {
		for precedence := range uint32(3) {
			m[fmt.Sprintf("af%d%d", class+1, precedence+1)] = (class+1)<<3 | (precedence+1)<<1
		}
	}
	return m
}()

func dscp(text string) ([]Range, *flaw) {
	if n, ok := dscpNumber[text]; ok {
		return []Range{{n, n}}, nil
	}
	r, f := span(text, "a code point from 0 to 63, a range, or a name such as ef, af11 or cs1", 63)
	if f != nil && f.hint == "" {
		if near := wording.Nearest(text, sorted(dscpNumber)); near != "" {
			f.hintf("did you mean %q?", near)
		}
	}
	return one(r, f)
}

// vlan reads an identifier or range, none for untagged frames, or any, which is whatever none is not: 4095, which
// IEEE 802.1Q reserves, too.
func vlan(text string) ([]Range, *flaw) {
	switch text {
	case "none":
		return []Range{{packet.VLANNone, packet.VLANNone}}, nil
	case "any":
		return []Range{{0, packet.VLANNone - 1}}, nil
	}
	return one(span(text, "a VLAN from 0 to 4094, a range, none or any", 4094))
}

// mss reads a maximum segment size or range, or none for a SYN without the option.
func mss(text string) ([]Range, *flaw) {
	if text == "none" {
		return []Range{{packet.MSSMissing, packet.MSSMissing}}, nil
	}
	return one(span(text, "a size from 0 to 65535, a range or none", 65535))
}
