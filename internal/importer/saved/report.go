package saved

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Remark is something about a line of the input, or about several that have the same said of them.
type Remark struct {
	File  string `json:"file"`
	Line  int    `json:"line,omitempty"`  // of the first; 0 when the format has no lines
	Last  int    `json:"last,omitempty"`  // of the last
	Count int    `json:"count"`           // how many rules it is about
	Place string `json:"place,omitempty"` // where it stands, when Line is 0
	Text  string `json:"text,omitempty"`  // the line itself, when it is about one
	Why   string `json:"why"`
}

// String is the remark on one line: FILE:LINE: text: why.
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

const maxText = 160 // of a rule in a message, in characters

// Shorten cuts a text to what fits into a message, and makes one blank of several.
func Shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > maxText {
		return string(r[:maxText-1]) + "…"
	}
	return text
}

// Report gathers remarks. What is said twice of a rule, since it is met on two ways, is kept once.
type Report struct {
	Lost, Notes []Remark
	said        map[said]bool

	Met       map[Place]bool  // rules that packets can get to
	IsLost    map[Place]bool  // rules that are named as lost
	IsNoted   map[Place]bool  // rules that something else is said of
	Published map[Place]bool  // rules that translate destinations, for which the policy has rules
	Checked   map[Place]bool  // rules that the check source-route of the policy stands for
	Shadowed  map[Place]Place // rules whose packets others decide before, by these
}

// enter enters a place in a set.
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

// Lose reports a rule, or a part of one, that has no equal in the policy.
func (r *Report) Lose(at Place, format string, args ...any) {
	enter(&r.IsLost, at)
	r.add(&r.Lost, at, format, args...)
}

// Note reports what the user may want to know and changes no verdict.
func (r *Report) Note(at Place, format string, args ...any) {
	enter(&r.IsNoted, at)
	r.add(&r.Notes, at, format, args...)
}

// Meets keeps that packets can get to a rule.
func (r *Report) Meets(at Place) { enter(&r.Met, at) }

// Translates keeps that the policy has rules for what a rule translates.
func (r *Report) Translates(at Place) { enter(&r.Published, at) }

// Checks keeps that the check source-route of the policy stands for a rule.
func (r *Report) Checks(at Place) { enter(&r.Checked, at) }

// minRun is how many rules in a row that have the same said of them are reported together.
const minRun = 4

// Gather sorts remarks by their place, and makes one of many in a row that say the same.
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

// follows reports whether next can be told together with r.
func (r Remark) follows(next Remark) bool {
	return r.File == next.File && r.Why == next.Why && (r.Line > 0) == (next.Line > 0)
}

// Total counts the rules that remarks are about.
func Total(remarks []Remark) (n int) {
	for _, r := range remarks {
		n += r.Count
	}
	return n
}
