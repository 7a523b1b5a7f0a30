// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// searches reports whether all lines search for texts. Each text takes a line of its own, so the tests before a text would be repeated in each line.
func searches(lines []lineTests) bool {
	return len(lines) > 1 && !slices.ContainsFunc(lines, func(a lineTests) bool {
		return !slices.ContainsFunc(a.match, func(m string) bool { return strings.HasPrefix(m, "-m string ") })
	})
}

// parted splits lines into the tests that they share and, in left, the remaining tests of each line. ok is false if the lines differ in their
// addresses, or in the options of the protocol's match. These cannot be split.
func parted(lines []lineTests) (shared lineTests, left []lineTests, ok bool) {
	shared = lines[0]
	for _, a := range lines[1:] {
		if a.proto != shared.proto || !slices.Equal(a.header, shared.header) || !slices.Equal(a.addrs, shared.addrs) {
			return lineTests{}, nil, false
		}
		shared.match = slices.DeleteFunc(slices.Clone(shared.match), func(m string) bool { return !slices.Contains(a.match, m) })
	}
	for _, a := range lines {
		left = append(left, lineTests{match: slices.DeleteFunc(slices.Clone(a.match), func(m string) bool { return slices.Contains(shared.match, m) })})
	}
	return shared, left, true
}

// texts adds the lines of a condition that searches for several texts. The lines are in a chain of their own, behind the tests that they share. If
// that is not possible, texts adds nothing and returns false: a rule that passes packets can leave Floodwall's chains only from the first chain.
func (f *familyBuilder) texts(t *table, r *ir.Rule, c condition, mark lineMark) bool {
	if r.Verdict == ir.Pass || len(c.not) > 0 || !searches(c.any) {
		return false
	}
	shared, left, ok := parted(c.any)
	if !ok {
		return false
	}
	own := t.chain(f.chainName(r.Name))
	t.at.add("%s-j %s", shared, own.name)
	for _, a := range left {
		if r.Verdict == ir.Reject { // the answer depends on the protocol
			a.proto = shared.proto
		}
		f.verdict(own, a, r.Verdict, mark)
	}
	return true
}

// byProtocol moves adjacent lines for one protocol into a chain of their own, so that packets of other protocols skip them with one test. This may
// change the order of lines of different protocols. The lines must not have the target RETURN.
func (f *familyBuilder) byProtocol(t *table, c *chain) {
	var out []chainLine
	for lines := c.lines; len(lines) > 0; {
		end := slices.IndexFunc(lines, func(l chainLine) bool { return lineProto(l) == "" })
		if end == 0 {
			out, lines = append(out, lines[0]), lines[1:]
			continue
		}
		if end < 0 {
			end = len(lines)
		}
		out = append(out, f.groups(t, lines[:end])...)
		lines = lines[end:]
	}
	c.lines = out
}

// groups moves the lines of each protocol into a called chain, if there are several.
func (f *familyBuilder) groups(t *table, run []chainLine) (out []chainLine) {
	for len(run) > 0 {
		proto := lineProto(run[0])
		var same, others []chainLine
		for _, l := range run {
			if lineProto(l) == proto {
				same = append(same, l)
			} else {
				others = append(others, l)
			}
		}
		if run = others; len(same) == 1 {
			out = append(out, same[0])
			continue
		}
		own := t.chain(f.chainName("checks-" + proto))
		own.lines = same
		out = append(out, chainLine{text: lineTests{proto: proto}.String() + "-j " + own.name})
	}
	return out
}

// lineProto returns the protocol of a line whose first test is the protocol, "" for other lines.
func lineProto(l chainLine) string {
	words := strings.Fields(l.text)
	if len(words) < 2 || words[0] != "-p" {
		return ""
	}
	return words[1]
}
