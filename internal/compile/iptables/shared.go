package iptables

import (
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// searches reports whether lines look for texts. Each text takes a line, and each test before a text is asked again in its line.
func searches(lines []lineTests) bool {
	return len(lines) > 1 && !slices.ContainsFunc(lines, func(a lineTests) bool {
		return !slices.ContainsFunc(a.match, func(m string) bool { return strings.HasPrefix(m, "-m string ") })
	})
}

// parted takes from lines the tests that all of them have; left are the other tests of each. ok is false when the lines differ in
// their addresses or in what one match must ask together, the protocol's.
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

// texts adds the lines of a condition that looks for several texts, in a chain of their own behind what all of them ask for. It
// reports false when that cannot be: what passes leaves our chains from the first of them only.
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
		if r.Verdict == ir.Reject { // the answer depends on it
			a.proto = shared.proto
		}
		f.verdict(own, a, r.Verdict, mark)
	}
	return true
}

// byProtocol puts lines of a chain that stand together and are for packets of one protocol into a chain of their own, which the
// packets of all others pass with one line. Lines of different protocols may change places. The lines must not return.
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

// groups has the lines of each protocol called, where there are several.
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

// lineProto is the protocol that a line asks for first, "" when that is not the first of its tests.
func lineProto(l chainLine) string {
	words := strings.Fields(l.text)
	if len(words) < 2 || words[0] != "-p" {
		return ""
	}
	return words[1]
}
