// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// drops returns the places that drop or reject packets: rules, and base chains whose policy is to drop.
func drops(rs *saved.Ruleset) (list []saved.Place) {
	seen := map[saved.Place]bool{}
	add := func(at saved.Place) {
		if !seen[at] {
			seen[at] = true
			list = append(list, at)
		}
	}
	for _, t := range rs.Tables {
		for _, c := range t.Order {
			if t.Families == 0 {
				continue
			}
			for i := range c.Rules {
				if c.Rules[i].Act.MayDrop() {
					add(c.Rules[i].At)
				}
			}
			if c.Hook != saved.HookNone && c.Policy.Kind == saved.ActDrop {
				add(c.PolicyAt)
			}
		}
	}
	return list
}

// account checks for each rule that drops that the policy has the rule, or that the report names it. If neither is true, this is a bug in this
// package, and account reports the rule as lost.
func account(rs *saved.Ruleset, list []flat, rep *saved.Report) (d Drops) {
	said := map[saved.Place]bool{}
	for _, f := range list {
		for _, at := range f.at {
			said[at] = true
		}
	}
	for _, at := range drops(rs) {
		d.Input++
		by, shadowed := rep.Shadowed[at]
		switch {
		case said[at] || rep.Checked[at]:
			d.Policy++
		case rep.IsLost[at]:
			d.Lost++
		case shadowed:
			d.Aside++
			rep.Note(at, "its packets are all decided before, by %s", where(by))
		case rep.IsNoted[at]:
			d.Aside++
		case rep.Met[at]:
			d.Lost++
			rep.Lose(at, "no rule of the policy says it")
		default:
			d.Aside++
			rep.Note(at, "no packet from outside gets here: rules before it decide, or what it asks cannot be")
		}
	}
	return d
}

// open says why a policy that drops nothing differs from the files, or "".
func open(rs *saved.Ruleset, list []flat) string {
	if slices.ContainsFunc(list, func(f flat) bool { return f.verdict == drop || f.verdict == reject }) {
		return ""
	}
	if n := len(dropsIn(rs)); n > 0 {
		return fmt.Sprintf("%d rules of the files drop packets that come in, and none of them is in the policy", n)
	}
	return ""
}

// dropsIn lists the places of drops that may drop packets from outside.
func dropsIn(rs *saved.Ruleset) []saved.Place {
	out := map[saved.Place]bool{}
	for _, t := range rs.Tables {
		leaving := reached(t, func(c *saved.Chain) bool { return c.Hook == saved.HookOutput })
		other := reached(t, func(c *saved.Chain) bool { return c.Hook != saved.HookOutput })
		for _, c := range t.Order {
			if leaving[c] && !other[c] {
				out[c.PolicyAt] = true
				eachRule(c, func(r *saved.Rule) { out[r.At] = true })
			}
		}
	}
	return slices.DeleteFunc(drops(rs), func(at saved.Place) bool { return out[at] })
}

// trusted returns an error if the rules pass everything that arrives on the chosen devices but drop other packets. In that case, other devices face
// the outside.
func trusted(rs *saved.Ruleset, devices []string, families saved.Family, router bool) error {
	if len(dropsIn(rs)) == 0 || len(outsideDevices(rs)) == 0 {
		return nil
	}
	rep := &saved.Report{}
	for _, f := range []saved.Family{saved.IPv4, saved.IPv6} {
		if families&f != 0 && len(flatten(rs, f, devices, router, rep)) > 0 {
			return nil
		}
	}
	if slices.ContainsFunc(dropsIn(rs), func(at saved.Place) bool { return rep.IsLost[at] }) {
		return nil // these tests might match
	}
	named := strings.Join(devices, ", ")
	return &saved.InputError{File: rs.File, Line: 0, Msg: fmt.Sprintf("its rules pass all that comes in through %s, and drop other packets", named),
		Remedy: fmt.Sprintf("say with --device through which device packets come in from outside; if that is %s, say so", named)}
}

// needed removes rules that decide nothing. Either an earlier rule matches all of the rule's packets, or a later rule gives them the same verdict.
func needed(list []flat, rep *saved.Report) (kept []flat) {
	if len(list) > maxCompared {
		return list
	}
	for i := range list {
		f := &list[i]
		of := f.Implied()
		by := -1
		for j := range kept {
			if k := &kept[j]; k.over == nil && k.CoversAll(&f.Cond, &of) {
				by = j
				break
			}
		}
		if by >= 0 {
			shadow(rep, *f, kept[by])
			continue
		}
		plain := f.comment == "" && f.Src == (saved.AddrTest{}) && f.Dst == (saved.AddrTest{}) // lists of addresses are kept, because people maintain them
		if same := f.sameBehind(list[i+1:], &of); same != nil && (plain || f.over != nil) {
			same.at = append(slices.Clip(same.at), f.at...)
			continue
		}
		kept = append(kept, *f)
	}
	return kept
}

// maxCompared is the largest number of rules that are compared with each other.
const maxCompared = 3000

// sameBehind returns the later rule that gives all packets of f the same verdict if f does not, or nil.
func (f *flat) sameBehind(list []flat, of *[packet.NumKeys]saved.Values) *flat {
	for i := range list {
		g := &list[i]
		if g.verdict != f.verdict {
			return nil
		}
		if g.over == nil && g.CoversAll(&f.Cond, of) {
			return g
		}
	}
	return nil
}

// shadow records that a rule decides nothing because an earlier rule matches all of its packets.
func shadow(r *saved.Report, f, by flat) {
	if r.Shadowed == nil {
		r.Shadowed = map[saved.Place]saved.Place{}
	}
	for _, at := range f.at {
		if by.wide && f.verdict != pass {
			r.Lose(at, "%s has no equal and passes its packets before", where(by.at[0]))
		}
		if len(by.at) > 0 {
			r.Shadowed[at] = by.at[0]
		}
	}
}
