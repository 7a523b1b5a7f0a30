// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// merge merges unnamed rules that differ in one key. It may change the order of consecutive rules with the same verdict, because that does not change
// the verdict of any packet.
func merge(p *ir.Program, rules []ir.Rule) []ir.Rule {
	var out []ir.Rule
	for start := 0; start < len(rules); {
		end := start + 1
		for end < len(rules) && rules[end].Verdict == rules[start].Verdict && mergeable(rules[end]) == mergeable(rules[start]) {
			end++
		}
		run := slices.Clone(rules[start:end])
		if mergeable(rules[start]) {
			run = mergeRun(p, run)
		}
		out = append(out, run...)
		start = end
	}
	return out
}

func mergeable(r ir.Rule) bool {
	return r.Unnamed && !r.Conditional() && r.Sample == 0 && r.Slip == 0 && r.Protect == 0
}

// A dimension is a key in which rules may differ if they are to be merged.
type dimension struct {
	name  string
	value func(*ir.Rule) string               // the value of the key in a rule, as text
	ready func(*ir.Rule) bool                 // whether the rule can be merged by this key
	join  func(p *ir.Program, all []*ir.Rule) // merges rules into the first one
}

func mergeRun(p *ir.Program, run []ir.Rule) []ir.Rule {
	dims := []dimension{addrDimension("from", srcOf), addrDimension("to", dstOf)}
	for f := range packet.NumKeys {
		dims = append(dims, fieldDimension(f))
	}
	for _, d := range dims {
		run = mergeBy(p, run, d, dims)
	}
	return run
}

// mergeBy merges those rules of a run that are equal in all dimensions except d.
func mergeBy(p *ir.Program, run []ir.Rule, d dimension, dims []dimension) []ir.Rule {
	groups := map[string][]*ir.Rule{}
	order := []string{}
	for i := range run {
		key := fmt.Sprintf("alone %d", i)
		if d.ready(&run[i]) {
			key = keyWithout(&run[i], d, dims) + string(run[i].Placement)
		}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], &run[i])
	}
	var out []ir.Rule
	for _, key := range order {
		all := groups[key]
		if len(all) > 1 {
			d.join(p, all)
			for _, r := range all[1:] {
				all[0].Merged = max(all[0].Merged, 1) + max(r.Merged, 1)
			}
		}
		out = append(out, *all[0])
	}
	return out
}

func keyWithout(r *ir.Rule, d dimension, dims []dimension) string {
	var b strings.Builder
	for _, o := range dims {
		if o.name != d.name {
			fmt.Fprintf(&b, "%s=%s;", o.name, o.value(r))
		}
	}
	return b.String()
}

func srcOf(r *ir.Rule) *[]ir.AddrMatch { return &r.Src }
func dstOf(r *ir.Rule) *[]ir.AddrMatch { return &r.Dst }

func addrDimension(name string, of func(*ir.Rule) *[]ir.AddrMatch) dimension {
	return dimension{
		name: name,
		value: func(r *ir.Rule) string {
			return fmt.Sprint(*of(r))
		},
		ready: func(r *ir.Rule) bool { return len(*of(r)) == 1 && !(*of(r))[0].Not },
		join:  func(p *ir.Program, all []*ir.Rule) { joinAddresses(p, all, of) },
	}
}

// joinAddresses replaces the sets of the first rule by the union of the sets of all rules. Addresses that were written in rules become one set.
func joinAddresses(p *ir.Program, all []*ir.Rule, of func(*ir.Rule) *[]ir.AddrMatch) {
	var kept []int
	var written []*addrs.Set
	for _, r := range all {
		for _, s := range (*of(r))[0].Sets {
			if p.Sets[s].Name == "" {
				written = append(written, p.Sets[s].Static)
			} else {
				kept = append(kept, s)
			}
		}
	}
	if written != nil {
		kept = append(kept, len(p.Sets))
		set := addrs.Union(written...)
		p.Sets = append(p.Sets, ir.Set{Static: set, Entries: len(written), Max: len(written)})
	}
	slices.Sort(kept)
	*of(all[0]) = []ir.AddrMatch{{Sets: slices.Compact(kept)}}
}

func fieldDimension(f packet.Field) dimension {
	at := func(r *ir.Rule) int {
		return slices.IndexFunc(r.Match, func(m ir.Match) bool { return m.Field == f })
	}
	return dimension{
		name: f.String(),
		value: func(r *ir.Rule) string {
			if i := at(r); i >= 0 {
				return fmt.Sprint(r.Match[i].Values)
			}
			return ""
		},
		ready: func(r *ir.Rule) bool { return at(r) >= 0 },
		join: func(_ *ir.Program, all []*ir.Rule) {
			var values []ir.Range
			for _, r := range all {
				values = append(values, r.Match[at(r)].Values...)
			}
			first := all[0]
			first.Match = slices.Clone(first.Match)
			first.Match[at(first)].Values = ranges.Normalize(values)
		},
	}
}
