package generation

import (
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
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// Most is how many temporary rules there may be at a time.
const Most = 32

// Owned divides rules into those of an owner and those of others, both in their order.
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

// Free is how many rules there may be beside those of others.
func Free(others []manifest.Temporary) int { return max(0, Most-len(others)) }

// Longest is the longest time for which a rule is temporary.
const Longest = 24 * time.Hour

// unfit says why a rule cannot be a temporary one.
func unfit(name, problem, remedy string) error {
	rule := "temporary rule"
	if name != "" {
		rule = fmt.Sprintf("temporary rule %q", name)
	}
	return wording.Hinted(rule+": "+problem, remedy)
}

// Before is a program with temporary rules before its own, in their order. None of them drops a packet from a source in spared. The
// checks of the program stay as they are: a temporary rule sees of a damaged packet what the program sees.
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
		r.Src = append(r.Src, exempt...)
		rules = append(rules, r)
	}
	out.Rules = slices.Concat(rules, program.Rules)
	return &out, nil
}

// exemption adds a set of who is spared to a program, and is the test that a source is not in it.
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

// Check reports what is wrong with a rule, by itself.
func Check(t manifest.Temporary) error {
	named := manifest.Temporary{Name: t.Name, Rule: fmt.Sprintf("{name: %q, proto: udp, then: drop}", t.Name)}
	if _, err := read(named); err != nil || strings.ContainsAny(t.Name, "\r\n") { // it becomes the name of a counter
		return unfit(t.Name, "is not a name of a rule", "write letters, digits, - and _")
	}
	_, err := lower(&ir.Program{}, t)
	return err
}

// NameIn is the name that a line gives its rule.
func NameIn(rule string) (string, error) {
	program, err := read(manifest.Temporary{Rule: rule})
	if err != nil {
		return "", err
	}
	if program.Rules[0].Unnamed {
		return "", unfit("", "has no name", "begin it with name: {name: flood, …}")
	}
	return program.Rules[0].Name, nil
}

// lower reads a temporary rule, and adds the sets that it asks for to a program.
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

// read reads the line of a rule as a policy does.
func read(t manifest.Temporary) (*ir.Program, error) {
	const remedy = "write it in one line, as it stands under rules: {name: flood, proto: udp, sport: 123, then: drop}"
	line := strings.TrimPrefix(strings.TrimSpace(t.Rule), "- ")
	if strings.ContainsAny(line, "\r\n") || !strings.HasPrefix(line, "{") {
		return nil, unfit(t.Name, "is not a rule in one line", remedy)
	}
	p, err := policy.Parse("rule", []byte("devices: [any]\ndefault: pass\nchecks: off\nrules:\n  - "+line+"\n"))
	if err != nil {
		return nil, unfit(t.Name, err.Error(), remedy)
	}
	if len(p.Rules) != 1 {
		return nil, unfit(t.Name, "is not one rule", remedy)
	}
	program, _, err := compile.Lower(p)
	if err != nil {
		return nil, unfit(t.Name, err.Error(), remedy)
	}
	if len(program.Rules) != 1 {
		return nil, unfit(t.Name, "matches nothing", remedy)
	}
	r := &program.Rules[0]
	field, never := match.Impossible(*r)
	switch {
	case never:
		return nil, unfit(t.Name, fmt.Sprintf("no packet has such a %v", field), remedy)
	case r.Verdict != ir.Drop:
		return nil, unfit(t.Name, "only drops can be temporary", "write then: drop")
	case match.Limited(r):
		return nil, unfit(t.Name, "a temporary rule has no limit: the tables of limits are those of the policy", "add the rule to the policy")
	case r.Sample > 0:
		return nil, unfit(t.Name, "a temporary rule hands out no samples", "leave sample out")
	}
	return program, nil
}
