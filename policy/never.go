package policy

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// dimension is a property of packets that several keys of a rule restrict. Where they leave nothing, or nothing of one
// written value, the rule never matches what its author expects, and that is a mistake.
type dimension struct {
	name func(value uint8) string
	size int
	keys []restriction // the first is the property's own key
	why  string        // why they restrict it, where that is not plain
}

// restriction says which values of a property the words of one key need; nil is any.
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
		{"family", needs(readFamily, func(f uint32) []uint8 { return []uint8{uint8(f)} })},
		{"from", addrNeeds},
		{"to", addrNeeds},
		{"icmp", needs(icmp, func(m ICMP) []uint8 { return []uint8{family(m.V6)} })},
	}, ""},
	// What tracks packets puts their fragments together before (kernel nf_defrag_ipv4.c, nf_defrag_ipv6_hooks.c).
	{fragmentWord, len(fragmentKinds), []restriction{
		{"fragment", needs(readFragment, func(kind uint32) []uint8 { return []uint8{uint8(kind)} })},
		{"state", needs(readState, fragmentsIn)},
	}, ", as conntrack reassembles fragments"},
}

// needs makes the needs of a word from those of what it is parsed to.
func needs[T any](parse func(string) ([]T, *flaw), of func(T) []uint8) func(string) []uint8 {
	return func(text string) (all []uint8) {
		parsed, _ := parse(text)
		for _, v := range parsed {
			all = append(all, of(v)...)
		}
		return all
	}
}

// thenNeeds are the protocols of what can be answered as a verdict says; what reject has no answer for is dropped.
func thenNeeds(text string) []uint8 {
	if thenWords[text] == Truncate {
		return []uint8{protoUDP}
	}
	return nil
}

func addrNeeds(text string) []uint8 {
	r, f := addrRange(text)
	if f != nil {
		return nil // a set or local
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

// fragmentKinds are the words for what a packet can be a fragment of.
var fragmentKinds = [...]string{
	packet.FragmentNone: "none", packet.FragmentFirst: "first", packet.FragmentLater: "later",
}

func fragmentWord(value uint8) string { return fragmentKinds[value] }

// fragmentsIn are the kinds of fragments that packets of a state can be: what is tracked was put together before.
func fragmentsIn(state uint32) []uint8 {
	if state == packet.StateUntracked {
		return []uint8{packet.FragmentNone, packet.FragmentFirst, packet.FragmentLater}
	}
	return []uint8{packet.FragmentNone}
}

// contradictions reports values in the rule n that no packet can have together with its other keys. The keys of not
// count where they exclude values of a property's own key.
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

// restricting are the words of key in the rule n. What dns asks for under not is read from UDP only, too.
func restricting(n *node, key string) []*node {
	v, not := n.Get(key), n.Get("not")
	if v == nil && key == "dns" && not != nil {
		v = not.Get(key)
	}
	return v.Words()
}

// but says why no value is left: because of the key cause, which leaves others.
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

// deadWords reports the values of the property's own key that the keys after it leave no packet for.
func (p place) deadWords(d dimension, n *node, left []uint8, cause string) {
	own := d.keys[0]
	for _, w := range n.Get(own.key).Words() {
		if need := own.needs(w.Text); common(left, need) == nil {
			p.never(w, own.key, fmt.Sprintf("%s leaves only %s %s%s", cause, own.key, d.list(left), d.why))
		}
	}
}

// laterFragments reports keys about an L4 header in a rule for fragments that have none.
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

// common are the values of a that are in b.
func common(a, b []uint8) (c []uint8) {
	for _, v := range a {
		if slices.Contains(b, v) {
			c = append(c, v)
		}
	}
	return c
}

// without are the values of a that are not in b.
func without(a, b []uint8) (c []uint8) {
	for _, v := range a {
		if !slices.Contains(b, v) {
			c = append(c, v)
		}
	}
	return c
}
