// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

const (
	maxText     = 64   // bytes of a pattern
	maxPatterns = 64   // the number of different patterns in a policy
	maxWithin   = 1024 // bytes of the payload that are searched
	maxPlace    = 16   // bytes that are compared at an offset
)

// payloadForm is the key payload while it is being parsed.
type payloadForm struct {
	texts   []*node // the words of contains; content has the bytes of each word
	content [][]byte
	nocase  bool
	within  uint16
	at      []At
}

var payloadKeys = []key[payloadForm]{
	{name: "contains", value: custom(place.contains, listOf(contentSchema)),
		doc: "One of these texts is in the payload. Bytes in hexadecimal stand between bars. A bar itself is `|7c|`.", examples: `"GET |0d 0a|"`},
	{name: "nocase", value: into(yesOrNo, func(to *payloadForm) *bool { return &to.nocase }),
		doc: "ASCII letters match in either case.", usual: `false`, examples: `true`},
	{name: "within", value: into(word(numeral(1, maxWithin, positive), within), func(to *payloadForm) *uint16 { return &to.within }),
		doc: "How many bytes of the payload are searched, at most 1024.", usual: `256`, examples: `64`},
	{name: "at", value: custom(place.places, listOf(placeSchema)),
		doc: "Bytes at a fixed place. All places of a list must match.", examples: `{"offset": 0, "bytes": "|17 00|"}`},
}

var payloadSchema = func() *schema {
	s := object(payloadKeys).titled("`{contains, nocase, within, at}`")
	s.AnyOf = []*schema{{Required: []string{"contains"}}, {Required: []string{"at"}}}
	s.DependentRequired = map[string][]string{"nocase": {"contains"}, "within": {"contains"}}
	return define("payload", s)
}()

// payload parses the key payload.
func (p place) payload(to *Match, v *node) {
	if v.Kind == yamltree.Word {
		p.errorf(v.Pos, "payload must be a mapping, got %s", v).Hint =
			fmt.Sprintf("write payload: {contains: %s}", wording.Quote(v.Text))
		return
	}
	if v.Kind == yamltree.List {
		p.errorf(v.Pos, "payload must be a mapping, got a list").Hint = "write payload: {contains: [TEXT, TEXT]}"
		return
	}
	form := defaults(v.Pos, payloadKeys)
	seen := readKeys(p, "payload", v, payloadKeys, &form)
	switch {
	case seen == nil || v.Lacks || seen["contains"]:
	case seen["nocase"] || seen["within"]:
		p.errorf(v.Pos, "payload says how to look for a text, but not for which").Hint =
			"add contains, or remove nocase and within"
	case !seen["at"]:
		p.errorf(v.Pos, "payload has neither contains nor at").Hint = `write payload: {contains: "text"}`
	}
	to.Payload = &Payload{Contains: p.patterns(&form), At: form.at}
}

// contains parses the patterns of contains, and stores them in to.
func (p place) contains(to *payloadForm, v *node) {
	p.each("contains", v, func(w *node) {
		content, f := sized(maxText)(w.Text)
		if f != nil {
			p.flawed(w.Pos, "contains", f)
			return
		}
		to.texts, to.content = append(to.texts, w), append(to.content, content)
	})
}

// patterns returns the words of contains as patterns. The options of form apply to all of them.
func (p place) patterns(form *payloadForm) []Pattern {
	var all []Pattern
	for i, content := range form.content {
		if len(content) > int(form.within) && form.within > 0 {
			p.errorf(form.texts[i].Pos, "contains has a text of %d bytes, which cannot be within %d", len(content), form.within).
				Hint = "raise within: it is how much of the payload is looked at"
			continue
		}
		if form.nocase {
			content = packet.LowerASCII(content)
		}
		pattern := Pattern{Text: content, NoCase: form.nocase, Within: form.within}
		p.countPattern(form.texts[i], pattern)
		all = append(all, pattern)
	}
	return all
}

// countPattern counts a pattern. It reports the first pattern above the limit.
func (p place) countPattern(w *node, pattern Pattern) {
	p.r.patterns[fmt.Sprintf("%t %d %s", pattern.NoCase, pattern.Within, pattern.Text)] = true
	if len(p.r.patterns) == maxPatterns+1 && !p.r.tooManyPatterns {
		p.r.tooManyPatterns = true
		p.errorf(w.Pos, "contains has one pattern too many: a policy can have %d different ones", maxPatterns).Hint =
			"look for a part that several of them share, or compare bytes at a place with at"
	}
}

func within(text string) (uint16, *flaw) {
	n, f := number(text, maxWithin)
	if f == nil && n > 0 {
		return uint16(n), nil
	}
	f = want(fmt.Sprintf("a number of bytes from 1 to %d", maxWithin), text)
	return 0, f.hintf("it is how much of the payload is looked at, 256 when left out")
}

var placeKeys = []key[At]{
	{name: "offset", value: into(word(numeral(0, maxWithin, digits), offset), func(to *At) *uint16 { return &to.Offset }),
		doc: "Where the bytes begin, 0 to 1024.", examples: `4`, must: "say where the bytes stand, as in offset: 0 for the first of the payload"},
	{name: "bytes", value: into(word(contentSchema, sized(maxPlace)), func(to *At) *[]byte { return &to.Value }),
		doc: "Up to 16 bytes, written as in `contains`.", examples: `"|ff ff|T"`, must: "say what shall stand there, as in bytes: \"|de ad|\""},
	{name: "mask", value: into(word(contentSchema, sized(maxPlace)), func(to *At) *[]byte { return &to.Mask }),
		doc: "The bits to compare. When left out: all bits.", examples: `"|ff 0f|"`},
	{name: "from", value: into(words[bool]{{"payload", false}, {"header", true}}.form(), func(to *At) *bool { return &to.Header }),
		doc: "Where `offset` counts from: the payload, or the TCP, UDP or ICMP header.", usual: `"payload"`, examples: `"header"`},
}

var placeSchema = define("place", object(placeKeys).titled("`{offset, bytes, mask, from}`"))

// places parses the key at of payload: one test at an offset, or a list of tests.
func (p place) places(to *payloadForm, v *node) {
	places := []*node{v}
	if v.Kind == yamltree.List {
		places = v.Items
	}
	if len(places) == 0 {
		p.errorf(v.Pos, "at is an empty list").Hint = `write at: {offset: 0, bytes: "|de ad|"}`
	}
	for _, n := range places {
		to.at = append(to.at, p.at(n))
	}
}

// at parses one test of bytes at an offset.
func (p place) at(n *node) At {
	var at At
	if n.Kind != yamltree.Mapping && n.Kind != yamltree.Broken {
		p.errorf(n.Pos, "at must be a mapping, got %s", n).Hint = `write at: {offset: 0, bytes: "|de ad|"}`
		return at
	}
	before := len(p.r.errs)
	readKeys(p, "at", n, placeKeys, &at)
	if len(p.r.errs) > before || !n.Whole() {
		return at
	}
	if at.Mask == nil {
		at.Mask = bytes.Repeat([]byte{0xff}, len(at.Value))
		return at
	}
	p.masked(at, n)
	return at
}

// masked reports a mask whose length differs from that of the bytes, or that clears bits that the bytes set.
func (p place) masked(at At, n *node) {
	mask := n.Get("mask")
	if len(at.Mask) != len(at.Value) {
		e := p.errorf(mask.Pos, "mask must be as long as bytes, %d bytes, got %d", len(at.Value), len(at.Mask))
		e.Hint = "it has the bits to compare of each byte, |ff| for all of one"
		for _, w := range []*node{n.Get("bytes"), mask} {
			if content, ok := bareHex(w.Text); ok {
				e.Hint = fmt.Sprintf("%s is text: for hexadecimal write %s", wording.Quote(w.Text), bars(content))
			}
		}
		return
	}
	covered := make([]byte, len(at.Value))
	for i := range covered {
		covered[i] = at.Value[i] & at.Mask[i]
	}
	if i := mismatch(covered, at.Value); i >= 0 {
		p.errorf(n.Get("bytes").Pos, "bytes can never match: byte %d is %02x, and the mask leaves %02x of it", i+1, at.Value[i], covered[i]).
			Hint = "write bytes: " + bars(covered)
	} else if len(bytes.Trim(at.Mask, "\x00")) == 0 {
		p.errorf(mask.Pos, "mask has no bit set: it compares nothing").Hint =
			"set the bits that shall be compared, |ff| for all of a byte"
	}
}

// mismatch returns the first index at which a and b differ, or -1.
func mismatch(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

func offset(text string) (uint16, *flaw) {
	n, f := number(text, maxWithin)
	if f != nil && strings.HasPrefix(text, "-") {
		f.hintf("places count from the start of the payload; with from: header, from the start of the L4 header")
	}
	return uint16(n), f
}
