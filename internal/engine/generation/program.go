// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// Most is the largest number of temporary rules at one time.
const Most = 32

// Owned divides temporary rules into the rules of an owner and the rules of other owners. Both lists keep their order.
func Owned(list []manifest.Temporary, owner string) (own, others []manifest.Temporary) {
	for _, t := range list {
		if t.Owner == owner {
			own = append(own, t)
		} else {
			others = append(others, t)
		}
	}
	return own, others
}

// Free returns the number of rules that one owner may have, given the rules of all other owners.
func Free(others []manifest.Temporary) int { return max(0, Most-len(others)) }

// Longest is the longest time that a temporary rule may last.
const Longest = 24 * time.Hour

// unfit returns the error that a rule cannot be a temporary rule. name may be "".
func unfit(name, problem, remedy string) error {
	rule := "temporary rule"
	if name != "" {
		rule = fmt.Sprintf("temporary rule %q", name)
	}
	return wording.Hinted(rule+": "+problem, remedy)
}

// Before returns a copy of a program with temporary rules before its own rules, in the order of list. No temporary rule drops a packet from a source
// in spared. The checks of the program stay the same: a temporary rule sees the same damaged packets as the program.
func Before(program *ir.Program, list []manifest.Temporary, spared []netip.Prefix) (*ir.Program, error) {
	out := *program
	out.Sets, out.Names = slices.Clone(program.Sets), slices.Clone(program.Names)
	var rules []ir.Rule
	exempt, err := exemption(&out, list, spared)
	if err != nil {
		return nil, err
	}
	for _, t := range list {
		r, err := lower(&out, t)
		if err != nil {
			return nil, err
		}
		spare(&r, t.Owner)
		r.Src = append(r.Src, exempt...)
		rules = append(rules, r)
	}
	out.Rules = slices.Concat(rules, program.Rules)
	return &out, nil
}

// spare makes a temporary rule ignore replies to packets that this host has sent, because packets of reflectors look like such replies. A rule that a
// person or a router added is not changed if it names sources. A rule that names states is never changed.
func spare(r *ir.Rule, owner string) {
	named := len(r.Src) > 0 && owner != manifest.Automatic
	if named || match.Tests(r, packet.State) {
		return
	}
	r.Spares = true
	r.Match = append(r.Match, ir.Match{Field: packet.State, Values: ranges.Complement(ir.Replies.Values, packet.State.Size())})
}

// exemption adds a set of the spared prefixes to a program. It returns the match for sources outside of that set.
func exemption(to *ir.Program, list []manifest.Temporary, spared []netip.Prefix) ([]ir.AddrMatch, error) {
	if len(list) == 0 || len(spared) == 0 {
		return nil, nil
	}
	var b addrs.Builder
	for _, p := range spared {
		if err := b.Add(p.Masked()); err != nil {
			return nil, err
		}
	}
	to.Sets = append(to.Sets, ir.Set{Static: b.Set(), Entries: b.Entries(), Max: b.Entries()})
	return []ir.AddrMatch{{Sets: []int{len(to.Sets) - 1}, Not: true}}, nil
}

// Check returns an error if a rule cannot be a temporary rule. Check does not compare the rule with other rules.
func Check(t manifest.Temporary) error {
	if t.Value == nil || t.Value.Name != t.Name {
		_, err := policy.ParseRule(fmt.Sprintf("{name: %q, proto: udp, then: drop}", t.Name))
		if err != nil || strings.ContainsAny(t.Name, "\r\n") { // the name becomes the name of a counter
			return unfit(t.Name, "is not a name of a rule", "write letters, digits, - and _")
		}
	}
	_, err := lower(&ir.Program{}, t)
	return err
}

// Parse parses the text of a temporary rule. name, unless it is empty, replaces the name in the text.
func Parse(text, name string) (t manifest.Temporary, err error) {
	t = manifest.Temporary{Name: name, Rule: text}
	if t.Value, err = policy.ParseRule(text); err != nil {
		return t, unfit(name, err.Error(), remedy)
	}
	if name == "" && !t.Value.Named {
		return t, unfit("", "has no name", "begin it with name: {name: flood, …}")
	}
	t.Name = cmp.Or(name, t.Value.Name)
	return t, nil
}

const remedy = "write it in one line, as it stands under rules: {name: flood, proto: udp, sport: 123, then: drop}"

// lower compiles a temporary rule, and adds the sets of the rule to a program.
func lower(to *ir.Program, t manifest.Temporary) (ir.Rule, error) {
	program, err := read(t)
	if err != nil {
		return ir.Rule{}, err
	}
	r := program.Rules[0]
	r.Name, r.Unnamed, r.Line, r.Until = t.Name, false, 0, t.Until.UnixNano()
	sets := make([]int, len(program.Sets))
	for i, s := range program.Sets {
		if s.Dynamic != nil {
			return r, unfit(t.Name, "asks for local, of which a temporary rule knows nothing", "write the addresses themselves")
		}
		sets[i] = len(to.Sets)
		to.Sets = append(to.Sets, s)
	}
	for _, side := range []*[]ir.AddrMatch{&r.Src, &r.Dst} {
		*side = slices.Clone(*side)
		for i, m := range *side {
			m.Sets = slices.Clone(m.Sets)
			for j := range m.Sets {
				m.Sets[j] = sets[m.Sets[j]]
			}
			(*side)[i] = m
		}
	}
	first := len(to.Names)
	to.Names = append(to.Names, program.Names...)
	r.Names = slices.Clone(r.Names)
	for i, m := range r.Names {
		m.Sets = slices.Clone(m.Sets)
		for j := range m.Sets {
			m.Sets[j] += first
		}
		r.Names[i] = m
	}
	return r, nil
}

// read compiles a temporary rule, in the same way as a rule of a policy. It first parses the text if another process has made the rule.
func read(t manifest.Temporary) (*ir.Program, error) {
	var err error
	if t.Value == nil {
		if t, err = Parse(t.Rule, t.Name); err != nil {
			return nil, err
		}
	}
	program, err := compile.Rule(t.Value)
	if err != nil {
		return nil, unfit(t.Name, err.Error(), remedy)
	}
	switch r := &program.Rules[0]; {
	case r.Verdict != ir.Drop:
		return nil, unfit(t.Name, "only drops can be temporary", "write then: drop")
	case match.Limited(r):
		return nil, unfit(t.Name, "a temporary rule has no limit: the tables of limits are those of the policy", "add the rule to the policy")
	case r.Sample > 0:
		return nil, unfit(t.Name, "a temporary rule hands out no samples", "leave sample out")
	}
	return program, nil
}
