// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Remark is a remark about a line of the input, or about several lines to which the same remark applies.
type Remark struct {
	File  string `json:"file"`
	Line  int    `json:"line,omitempty"`  // the first line; 0 if the format has no lines
	Last  int    `json:"last,omitempty"`  // the last line
	Count int    `json:"count"`           // number of rules to which it applies
	Place string `json:"place,omitempty"` // the place of the rule, if Line is 0
	Text  string `json:"text,omitempty"`  // the line itself, if the remark is about a single line
	Why   string `json:"why"`
}

// String returns the remark on one line: FILE:LINE: text: why.
func (r Remark) String() string {
	where := r.File
	switch {
	case r.Line > 0 && r.Last > r.Line:
		where = fmt.Sprintf("%s:%d-%d", r.File, r.Line, r.Last)
	case r.Line > 0:
		where = fmt.Sprintf("%s:%d", r.File, r.Line)
	case r.Place != "":
		where = fmt.Sprintf("%s: %s", r.File, r.Place)
	}
	switch {
	case r.Count > 1:
		return fmt.Sprintf("%s: %d rules: %s", where, r.Count, r.Why)
	case r.Text == "":
		return fmt.Sprintf("%s: %s", where, r.Why)
	}
	return fmt.Sprintf("%s: %s: %s", where, Shorten(r.Text), r.Why)
}

const maxText = 160 // largest length of a rule in a message, in characters

// Shorten cuts a text to the length that fits into a message, and replaces successive blanks by one.
func Shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > maxText {
		return string(r[:maxText-1]) + "…"
	}
	return text
}

// Report collects remarks. If a rule is reached in two ways, the same remark may be reported twice; Report keeps it once.
type Report struct {
	Lost, Notes []Remark
	said        map[said]bool

	Met       map[Place]bool  // rules that packets can reach
	IsLost    map[Place]bool  // rules that were reported as lost
	IsNoted   map[Place]bool  // rules with a note
	Published map[Place]bool  // rules that translate destinations, for which the policy has rules
	Checked   map[Place]bool  // rules that the policy's check source-route replaces
	Shadowed  map[Place]Place // rules whose packets are all decided by an earlier rule, each with that earlier rule
}

// enter adds a place to a set.
func enter(set *map[Place]bool, at Place) {
	if *set == nil {
		*set = map[Place]bool{}
	}
	(*set)[at] = true
}

type said struct {
	at  Place
	why string
}

func (r *Report) add(to *[]Remark, at Place, format string, args ...any) {
	s := said{at, fmt.Sprintf(format, args...)}
	if r.said[s] {
		return
	}
	if r.said == nil {
		r.said = map[said]bool{}
	}
	r.said[s] = true
	*to = append(*to, Remark{File: at.File, Line: at.Line, Last: at.Line, Count: 1, Place: at.At, Text: at.Text, Why: s.why})
}

// Lose reports a rule, or a part of a rule, that has no equivalent in the policy.
func (r *Report) Lose(at Place, format string, args ...any) {
	enter(&r.IsLost, at)
	r.add(&r.Lost, at, format, args...)
}

// Note reports a fact that changes no verdict, but that the user may want to know.
func (r *Report) Note(at Place, format string, args ...any) {
	enter(&r.IsNoted, at)
	r.add(&r.Notes, at, format, args...)
}

// Meets records that packets can reach a rule.
func (r *Report) Meets(at Place) { enter(&r.Met, at) }

// Translates records that the policy has rules for the packets whose destination a rule translates.
func (r *Report) Translates(at Place) { enter(&r.Published, at) }

// Checks records that the policy's check source-route replaces a rule.
func (r *Report) Checks(at Place) { enter(&r.Checked, at) }

// minRun is the number of successive remarks with the same text from which on they are reported together.
const minRun = 4

// Gather sorts remarks by their place, and joins many successive remarks with the same text.
func Gather(remarks []Remark) (out []Remark) {
	slices.SortStableFunc(remarks, func(a, b Remark) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	for i := 0; i < len(remarks); {
		n := 1
		for i+n < len(remarks) && remarks[i].follows(remarks[i+n]) {
			n++
		}
		if n < minRun {
			out = append(out, remarks[i])
			i++
			continue
		}
		r := remarks[i]
		r.Last, r.Count, r.Text = remarks[i+n-1].Line, n, ""
		out = append(out, r)
		i += n
	}
	return out
}

// follows reports whether r and next can be reported together.
func (r Remark) follows(next Remark) bool {
	return r.File == next.File && r.Why == next.Why && (r.Line > 0) == (next.Line > 0)
}

// Total returns the number of rules that remarks are about.
func Total(remarks []Remark) (n int) {
	for _, r := range remarks {
		n += r.Count
	}
	return n
}
