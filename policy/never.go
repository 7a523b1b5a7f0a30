// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// dimension is a property of packets that several keys of a rule restrict. It is a mistake if the keys together leave
// no value, or exclude a value that the rule names: the rule then never matches packets that its author expects.
type dimension struct {
	name func(value uint8) string
	size int
	keys []restriction // the first is the property's own key
	why  string        // the reason for the restriction, if it is not obvious
}

// restriction has the values of a property that each word of a key requires; nil is any value.
type restriction struct {
	key   string
	needs func(text string) []uint8
}

var dimensions = []dimension{
	{ProtocolName, 256, []restriction{
		{"proto", needs(proto, func(n uint8) []uint8 { return []uint8{n} })},
		{"port", needs(port, Port.protos)},
		{"sport", needs(port, Port.protos)},
		{"flags", func(string) []uint8 { return []uint8{protoTCP} }},
		{"mss", func(string) []uint8 { return []uint8{protoTCP} }},
		{"icmp", needs(icmp, func(m ICMP) []uint8 { return []uint8{m.proto()} })},
		{"dns", func(string) []uint8 { return []uint8{protoUDP} }},
		{"then", thenNeeds},
	}, ""},
	{familyWord, 2, []restriction{
		{"family", needs(familyWords.parse, func(f uint32) []uint8 { return []uint8{uint8(f)} })},
		{"from", addrNeeds},
		{"to", addrNeeds},
		{"icmp", needs(icmp, func(m ICMP) []uint8 { return []uint8{family(m.V6)} })},
	}, ""},
	// Conntrack reassembles fragments before it assigns a state (kernel nf_defrag_ipv4.c, nf_defrag_ipv6_hooks.c).
	{fragmentWord, len(fragmentKinds), []restriction{
		{"fragment", needs(fragmentWords.parse, func(kind uint32) []uint8 { return []uint8{uint8(kind)} })},
		{"state", needs(readState, fragmentsIn)},
	}, ", as conntrack reassembles fragments"},
}

// needs returns a function that maps a word to the values that it requires. parse parses the word. of returns the values that a parsed alternative
// requires.
func needs[T any](parse func(string) ([]T, *flaw), of func(T) []uint8) func(string) []uint8 {
	return func(text string) (all []uint8) {
		parsed, _ := parse(text)
		for _, v := range parsed {
			all = append(all, of(v)...)
		}
		return all
	}
}

// thenNeeds returns the protocols that a verdict requires. reject requires none: packets that cannot get an answer are
// dropped.
func thenNeeds(text string) []uint8 {
	if verdict, _ := thenWords.parse(text); verdict == Truncate {
		return []uint8{protoUDP}
	}
	return nil
}

func addrNeeds(text string) []uint8 {
	r, f := addrRange(text)
	if f != nil {
		return nil // a set or local, which can have both families
	}
	return []uint8{family(!r.First.Is4())}
}

func family(v6 bool) uint8 {
	if v6 {
		return packet.FamilyIPv6
	}
	return packet.FamilyIPv4
}

func familyWord(value uint8) string {
	if value == packet.FamilyIPv6 {
		return "ipv6"
	}
	return "ipv4"
}

// fragmentKinds are the names of the kinds of fragments, for messages.
var fragmentKinds = [...]string{
	packet.FragmentNone: "none", packet.FragmentFirst: "first", packet.FragmentLater: "later",
}

func fragmentWord(value uint8) string { return fragmentKinds[value] }

// fragmentsIn returns the kinds of fragments that packets of a state can be. Tracked packets have been reassembled.
func fragmentsIn(state uint32) []uint8 {
	if state == packet.StateUntracked {
		return []uint8{packet.FragmentNone, packet.FragmentFirst, packet.FragmentLater}
	}
	return []uint8{packet.FragmentNone}
}

// contradictions reports values in the rule n that no packet can have together with its other keys. The keys of not are
// used only where they exclude values of a property's own key.
func (p place) contradictions(n *node) {
	before := len(p.r.errs)
	for _, d := range dimensions {
		p.contradiction(d, n)
	}
	if len(p.r.errs) == before {
		p.laterFragments(n)
	}
}

func (p place) contradiction(d dimension, n *node) {
	left, cause := d.all(), ""
	if not := n.Get("not"); not != nil {
		for _, w := range not.Get(d.keys[0].key).Words() {
			left, cause = without(left, d.keys[0].needs(w.Text)), "not"
		}
	}
	reported := false
	for _, k := range d.keys {
		words := restricting(n, k.key)
		var union []uint8
		for _, w := range words {
			need := k.needs(w.Text)
			if need == nil {
				need = left
			} else if common(left, need) == nil {
				p.never(w, k.key, fmt.Sprintf("it needs %s %s%s, %s", d.keys[0].key, d.list(need), d.why, d.but(left, cause)))
				reported = true
			}
			union = append(union, need...)
		}
		if words != nil && len(common(left, union)) < len(left) {
			left, cause = common(left, union), k.key
		}
	}
	if !reported {
		p.deadWords(d, n, left, cause)
	}
}

// restricting returns the words of key in the rule n. If a rule has no dns key, the dns key under not counts, because a negated dns is tested in UDP
// packets only, too.
func restricting(n *node, key string) []*node {
	v, not := n.Get(key), n.Get("not")
	if v == nil && key == "dns" && not != nil {
		v = not.Get(key)
	}
	return v.Words()
}

// but returns a text with the reason why the keys leave no value. cause is the key that excludes the values.
func (d dimension) but(left []uint8, cause string) string {
	own := d.keys[0].key
	switch {
	case cause == "not":
		return "which not excludes"
	case cause == own:
		return fmt.Sprintf("but %s is %s", own, d.list(left))
	}
	return fmt.Sprintf("but %s needs %s %s", cause, own, d.list(left))
}

// deadWords reports each word of the property's own key whose values are all excluded by the other keys. left has the values that remain.
func (p place) deadWords(d dimension, n *node, left []uint8, cause string) {
	own := d.keys[0]
	for _, w := range n.Get(own.key).Words() {
		if need := own.needs(w.Text); common(left, need) == nil {
			p.never(w, own.key, fmt.Sprintf("%s leaves only %s %s%s", cause, own.key, d.list(left), d.why))
		}
	}
}

// laterFragments reports keys that test an L4 header in a rule that matches only later fragments. Later fragments have no L4 header.
func (p place) laterFragments(n *node) {
	fragments := n.Get("fragment").Words()
	if fragments == nil || slices.ContainsFunc(fragments, func(w *node) bool { return w.Text != "later" }) {
		return
	}
	for _, key := range []string{"port", "sport", "flags", "icmp", "payload", "dns"} {
		if ws := n.Get(key).Words(); ws != nil {
			p.never(ws[0], key, "later fragments have no L4 header")
		}
	}
	if then := n.Get("then"); then.Text == "truncate" {
		p.never(then, "then", "later fragments have no L4 header")
	}
}

func (p place) never(w *node, key, why string) {
	what := key
	if w.Kind == yamltree.Word {
		what += " " + wording.Quote(w.Text)
	}
	p.errorf(w.Pos, "%s never matches: %s", what, why).Hint = "correct one of the two, or make two rules"
}

func (d dimension) all() []uint8 {
	vs := make([]uint8, d.size)
	for i := range vs {
		vs[i] = uint8(i)
	}
	return vs
}

func (d dimension) list(values []uint8) string {
	slices.Sort(values)
	var names []string
	for _, v := range slices.Compact(values) {
		names = append(names, d.name(v))
	}
	return wording.Either(names)
}

// common returns the values of a that are in b.
func common(a, b []uint8) (c []uint8) {
	for _, v := range a {
		if slices.Contains(b, v) {
			c = append(c, v)
		}
	}
	return c
}

// without returns the values of a that are not in b.
func without(a, b []uint8) (c []uint8) {
	for _, v := range a {
		if !slices.Contains(b, v) {
			c = append(c, v)
		}
	}
	return c
}
