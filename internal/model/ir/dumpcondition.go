// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// conditions returns the words for all tests of r except those of addresses and fields.
func (p *Program) conditions(r *Rule) (words []string) {
	for _, m := range r.Names {
		words = append(words, "dns.name"+operator(m.Not)+p.nameWords(m))
	}
	if r.Unanswered {
		words = append(words, "unanswered")
	}
	for _, m := range r.Payload {
		words = append(words, "payload"+operator(m.Not)+m.String())
	}
	word := "over="
	switch r.Asks {
	case NoFlood:
	case AsksSpent:
		word = r.Asks.String() + "="
	default:
		words = append(words, r.Asks.String())
	}
	for _, limit := range r.Over {
		words = append(words, word+p.LimitText(limit))
	}
	if r.Connections != nil {
		words = append(words, "over="+r.Connections.String())
	}
	if r.Until != 0 {
		words = append(words, "until="+time.Unix(0, r.Until).UTC().Format(time.RFC3339))
	}
	return words
}

// actions returns the words for all actions of r except its verdict.
func (r *Rule) actions() (words []string) {
	if r.Observe {
		words = append(words, "observe")
	}
	if r.Slip > 0 {
		words = append(words, fmt.Sprintf("slip=%d", r.Slip))
	}
	if r.Sample > 0 {
		words = append(words, fmt.Sprintf("sample=1/%d", r.Sample))
	}
	if r.Protect > 0 {
		words = append(words, "protect")
	}
	if r.Placement != "" {
		words = append(words, "placement="+string(r.Placement))
	}
	return words
}

func operator(not bool) string {
	if not {
		return "!="
	}
	return "="
}

// nameWords returns the sets of m as text: a set of the policy by its name, and names that are written in the rule as they are.
func (p *Program) nameWords(m NameMatch) string {
	var words []string
	for _, i := range m.Sets {
		if set := &p.Names[i]; set.Name != "" {
			words = append(words, "$"+set.Name)
		} else {
			words = append(words, set.content(","))
		}
	}
	return strings.Join(words, ",")
}

// content returns the names of a set as text, or only the first ones if there are many.
func (s *NameSet) content(separator string) string {
	if len(s.Names) == 0 {
		return "empty"
	}
	return strings.Join(firstWords(s.Names, 8, "names", func(name string) string { return cmp.Or(name, ".") }), separator)
}

// String returns the match in the notation of the policy's payload, except that nocase and within stand at each pattern that has them.
func (m PayloadMatch) String() string {
	var patterns, places, parts []string
	for _, p := range m.Any {
		patterns = append(patterns, p.String())
	}
	for _, a := range m.At {
		places = append(places, a.String())
	}
	if patterns != nil {
		parts = append(parts, "contains: ["+strings.Join(patterns, ", ")+"]")
	}
	if places != nil {
		parts = append(parts, "at: ["+strings.Join(places, ", ")+"]")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// String returns the text of the pattern, with hexadecimal between bars, and the options of the search.
func (p Pattern) String() string {
	text := fmt.Sprintf("%q", packet.ContentText(p.Text))
	if p.NoCase {
		text += " nocase"
	}
	return fmt.Sprintf("%s within %d", text, p.Within)
}

// String returns a in the notation of the policy.
func (a At) String() string {
	from := ""
	if a.Base == BaseL4 {
		from = ", from: header"
	}
	return fmt.Sprintf(`{offset: %d, bytes: "|% x|", mask: "|% x|"%s}`, a.Offset, a.Value, a.Mask, from)
}

// guardLine describes the part of a guard that is not a rule.
func (p *Program) guardLine(g *Guard) string {
	words := []string{"guard " + g.Service + ":", Match{packet.DPort, g.Ports}.values()}
	if g.Verify > 0 {
		words = append(words, fmt.Sprintf("verify=%s", g.Verify))
	}
	if len(g.Secrets) > 0 {
		words = append(words, fmt.Sprintf("secrets=%d", len(g.Secrets)))
	}
	if g.Out >= 0 {
		words = append(words, "responses="+p.LimitText(g.Out))
	}
	if n := g.Names; n != nil {
		words = append(words, "flooded="+p.LimitText(n.Flooded), "go-on="+p.LimitText(n.GoOn), "new-names="+p.LimitText(n.New))
	}
	if g.Observe {
		words = append(words, "observe")
	}
	return strings.Join(words, " ")
}
