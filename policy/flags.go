// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// flagNames are the TCP flags by bit, lowest first (RFC 9293, 3.1).
var flagNames = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"}

const flagsForm = "TCP flags, as in syn or syn/fin,syn,rst,ack"

var flagsSchema = func() *schema {
	list := fmt.Sprintf("(%[1]s)(,(%[1]s))*", strings.Join(flagNames, "|"))
	return define("tcpFlags", anyOf(text(fmt.Sprintf("^(none|0|%[1]s)(/%[1]s)?$", list)), enum(0)).
		titled("TCP flags: `flags` or `flags/mask`").described("Flags that must be set, or `value/mask`. `none` is no flag. Within `[]` and `{}` a text "+
		"with commas needs quotes.").withExamples(`"syn", "syn/fin,syn,rst,ack", "none/fin,syn,rst,ack"`))
}()

// flags parses value/mask, or flags that must all be set. A value of none or 0 means that no flag of the mask is set. Without a mask, it means that
// none of the eight flags is set.
func flags(text string) (Flags, *flaw) {
	valueText, maskText, hasMask := strings.Cut(text, "/")
	value, ok := flagBits(valueText)
	if !ok {
		return Flags{}, flagHint(text, valueText)
	}
	mask := value
	switch {
	case hasMask:
		if mask, ok = flagBits(maskText); !ok {
			return Flags{}, flagHint(text, maskText)
		}
	case value == 0:
		mask = 255
	}
	switch {
	case mask == 0:
		return Flags{}, want(flagsForm, text).hintf("the mask names the flags to look at: none/fin,syn,rst,ack")
	case value&^mask != 0:
		extra := Flags{value &^ mask, 0}.list()
		f := &flaw{msg: fmt.Sprintf("can never be %s: %s is not in the mask", wording.Quote(text), extra)}
		return Flags{}, f.hintf("write %s", Flags{value, mask | value})
	}
	return Flags{value, mask}, nil
}

// ParseFlags parses value/mask, in the form of the key flags. Without a mask, all flags of the value must be set.
func ParseFlags(text string) (Flags, error) {
	read, f := flags(text)
	if f != nil {
		return Flags{}, f
	}
	return read, nil
}

func flagBits(text string) (bits uint8, ok bool) {
	if text == "none" || text == "0" {
		return 0, true
	}
	for name := range strings.SplitSeq(text, ",") {
		bit, ok := flagBit(name)
		if !ok {
			return 0, false
		}
		bits |= bit
	}
	return bits, true
}

func flagBit(name string) (uint8, bool) {
	for i, n := range flagNames {
		if n == name {
			return 1 << i, true
		}
	}
	return 0, false
}

// flagHint returns a flaw with a hint for text. part is the part of text that is not a list of flags.
func flagHint(text, part string) *flaw {
	f := want(flagsForm, text)
	if mask, value, ok := strings.Cut(text, " "); ok {
		m, ok1 := flagBits(strings.ToLower(mask))
		v, ok2 := flagBits(strings.ToLower(value))
		if ok1 && ok2 && v&^m == 0 {
			return f.hintf("the value comes first: %s", Flags{v, m})
		}
	}
	if compact := strings.ReplaceAll(text, " ", ""); compact != text {
		if _, g := flags(compact); g == nil {
			return f.hintf("write %s, without blanks", compact)
		}
	}
	for name := range strings.SplitSeq(part, ",") {
		if _, ok := flagBit(name); ok {
			continue
		}
		if near := wording.Nearest(name, flagNames); near != "" {
			return f.hintf("did you mean %q instead of %s?", near, wording.Quote(name))
		}
	}
	return f.hintf("the flags are %s", strings.Join(flagNames, ", "))
}

// list returns the names of the flags in Value.
func (f Flags) list() string {
	var set []string
	for i, n := range flagNames {
		if f.Value>>i&1 == 1 {
			set = append(set, n)
		}
	}
	if set == nil {
		return "none"
	}
	return strings.Join(set, ",")
}

// String returns f in the policy's notation.
func (f Flags) String() string { return f.list() + "/" + Flags{Value: f.Mask}.list() }

// flagsKey parses the key flags. In a list in brackets, YAML reads the commas of a mask as separators. One intended
// alternative then becomes several, all of which are valid words.
func (p place) flagsKey(to *Match, v *node) {
	if !v.Flow || !p.cutMask(v) {
		to.Flags = values(p, "flags", v, func(text string) ([]Flags, *flaw) { return one(flags(text)) })
	}
}

// cutMask reports a mistake if YAML has split a mask in the list v at its commas. It returns whether it has reported one.
func (p place) cutMask(v *node) bool {
	for i, w := range v.Items[min(1, len(v.Items)):] {
		before := v.Items[i]
		if before.Quoted || w.Quoted || !strings.Contains(before.Text, "/") || strings.Contains(w.Text, "/") {
			continue
		}
		if _, ok := flagBit(w.Text); ok {
			p.errorf(w.Pos, "flags has %s behind %s: a comma in [] begins a new value", wording.Quote(w.Text), wording.Quote(before.Text)).Hint =
				`quote a mask with commas, as in ["syn/fin,syn,rst,ack"]; quote "` + w.Text + `" if it is meant alone`
			return true
		}
	}
	return false
}
