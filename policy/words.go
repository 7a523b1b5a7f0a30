// SPDX-License-Identifier: Apache-2.0

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

// protoNumber maps the policy's names of protocols to their numbers (IANA, Assigned Internet Protocol Numbers).
var protoNumber = map[string]uint8{
	"icmp": protoICMP, "igmp": 2, "ipip": 4, "tcp": protoTCP, "udp": protoUDP, "dccp": 33, "ipv6": 41, "gre": 47,
	"esp": 50, "ah": 51, "icmpv6": protoICMPv6, "eigrp": 88, "ospf": 89, "pim": 103, "vrrp": 112, "l2tp": 115,
	"sctp": 132, "udplite": 136,
}

// ProtocolName returns the policy's name of a protocol, or its number if it has no name.
func ProtocolName(number uint8) string {
	for name, n := range protoNumber {
		if n == number {
			return name
		}
	}
	return strconv.Itoa(int(number))
}

// ParseProtocol parses the name or the number of a protocol, in the notation of the key proto.
func ParseProtocol(text string) (uint8, error) {
	n, f := proto(text)
	if f != nil {
		return 0, f
	}
	return n[0], nil
}

var protocolSchema = define("protocol", anyOf(whole(0, 255), text(digits), enumOf(protoNumber)).
	titled("protocol").described("A protocol by name or number, 0 to 255."))

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

// wordFlaw returns the flaw of a text that is not one of words. what describes the allowed words.
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

// words are the words that a key allows, with their meanings. The reference has them in this order.
type words[T any] []struct {
	word  string
	means T
}

// parse parses one of the words.
func (ws words[T]) parse(text string) (T, *flaw) {
	var all []string
	for _, w := range ws {
		if w.word == text {
			return w.means, nil
		}
		all = append(all, w.word)
	}
	slices.Sort(all)
	var none T
	return none, wordFlaw(wording.Either(all), text, all)
}

// schema returns the schema of the words. YAML takes true and false without quotes for switches.
func (ws words[T]) schema() *schema {
	var switches, all []any
	for _, w := range ws {
		if w.word == "true" || w.word == "false" {
			switches = append(switches, w.word == "true")
		}
		all = append(all, w.word)
	}
	return enum(append(switches, all...)...)
}

func (ws words[T]) form() form[T] { return word(ws.schema(), ws.parse) }

func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

var (
	familySchema = define("familyName", familyWords.schema())
	familyWords  = words[[]uint32]{{"ipv4", []uint32{packet.FamilyIPv4}}, {"ipv6", []uint32{packet.FamilyIPv6}}}

	fragmentSchema = define("fragmentKind", fragmentWords.schema())
	fragmentWords  = words[[]uint32]{
		{"true", []uint32{packet.FragmentFirst, packet.FragmentLater}}, {"false", []uint32{packet.FragmentNone}},
		{"none", []uint32{packet.FragmentNone}}, {"first", []uint32{packet.FragmentFirst}}, {"later", []uint32{packet.FragmentLater}},
	}
)

// stateWords are the states of conntrack.
var (
	stateSchema = define("stateName", stateWords.schema())
	stateWords  = words[[]uint32]{
		{"new", []uint32{packet.StateNew}}, {"established", []uint32{packet.StateEstablished}}, {"related", []uint32{packet.StateRelated}},
		{"invalid", []uint32{packet.StateInvalid}}, {"untracked", []uint32{packet.StateUntracked}},
	}
)

// readState parses a state of conntrack.
func readState(text string) ([]uint32, *flaw) {
	states, f := stateWords.parse(text)
	if text == "tracked" {
		f.hintf("write not: {state: untracked}") // untracked has the nearest spelling but the opposite meaning, so the hint must not suggest it
	}
	return states, f
}

// placementWords are the values of `placement`.
var placementWords = words[Placement]{
	{"auto", "auto"}, {"earliest", "earliest"}, {"xdp", "xdp"}, {"ingress", "ingress"}, {"raw", "raw"}, {"filter", "filter"},
}

var placementForm = word(define("placement", placementWords.schema().titled("stage")), readPlacement)

// placementHabits maps other tools' names of stages to the policy's.
var placementHabits = map[string]string{
	"prerouting": "raw", "input": "filter", "forward": "filter", "netdev": "ingress", "tc": "ingress", "driver": "xdp",
	"first": "earliest", "early": "earliest", "none": "auto", "default": "auto",
}

func readPlacement(text string) (Placement, *flaw) {
	at, f := placementWords.parse(text)
	if ours, ok := placementHabits[strings.ToLower(text)]; ok {
		f.hintf("write %s", ours)
	}
	return at, f
}

// bootWords are the values of `boot`. The meaning of each is whether the host is closed at boot.
var bootWords = words[bool]{{"open", false}, {"closed", true}}

// switches are the words for on and off. They are those of YAML.
var switches = map[string]bool{"on": true, "yes": true, "true": true, "off": false, "no": false, "false": false}

var (
	switchEnum   = append([]any{true, false}, anyOfKeys(switches)...)
	switchSchema = define("switch", enum(switchEnum...).titled("`true` or `false`"))
	offSchema    = define("off", enum(false, "off", "no", "false").titled("`off`").described("Switches this off."))
	yesOrNo      = word(switchSchema, yesNo)
)

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

var codePointSchema = define("codePoint", rangesTo(63, enumOf(dscpNumber)).
	titled("name, number 0 to 63 or range"))

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

var vlanSchema = define("vlanID", rangesTo(4094, enum("none", "any")).titled("VLAN 0 to 4094, range, `none` or `any`"))

// vlan parses a VLAN ID or range, none for untagged frames, or any for all tagged frames. any includes 4095, which IEEE
// 802.1Q reserves.
func vlan(text string) ([]Range, *flaw) {
	switch text {
	case "none":
		return []Range{{packet.VLANNone, packet.VLANNone}}, nil
	case "any":
		return []Range{{0, packet.VLANNone - 1}}, nil
	}
	return one(span(text, "a VLAN from 0 to 4094, a range, none or any", 4094))
}

var segmentSizeSchema = define("segmentSize", rangesTo(65535, enum("none")).titled("number 0 to 65535, range or `none`"))

// mss parses a maximum segment size or range, or none for a SYN without the option.
func mss(text string) ([]Range, *flaw) {
	if text == "none" {
		return []Range{{packet.MSSMissing, packet.MSSMissing}}, nil
	}
	return one(span(text, "a size from 0 to 65535, a range or none", 65535))
}
