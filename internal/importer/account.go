package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/packet"
)

// drops lists what drops or rejects packets: rules, and the policies of base chains.
func (rs *ruleset) drops() (list []place) {
	seen := map[place]bool{}
	add := func(at place) {
		if !seen[at] {
			seen[at] = true
			list = append(list, at)
		}
	}
	for _, t := range rs.tables {
		for _, c := range t.order {
			if t.families == 0 {
				continue
			}
			for i := range c.rules {
				if k := c.rules[i].act.kind; k == actDrop || k == actReject {
					add(c.rules[i].at)
				}
			}
			if c.hook != hookNone && c.policy.kind == actDrop {
				add(c.policyAt)
			}
		}
	}
	return list
}

// account finds out what became of each rule that drops: it is in the policy, or it is named. That one of them is neither
// is a fault of this package; it is named then as lost.
func (rs *ruleset) account(list []flat, rep *report) (d Drops) {
	said := map[place]bool{}
	for _, f := range list {
		for _, at := range f.at {
			said[at] = true
		}
	}
	for _, at := range rs.drops() {
		d.Input++
		by, shadowed := rep.shadowed[at]
		switch {
		case said[at]:
			d.Policy++
		case rep.isLost[at]:
			d.Lost++
		case shadowed:
			d.Aside++
			rep.note(at, "its packets are all decided before, by %s", where(by))
		case rep.isNoted[at]:
			d.Aside++
		case rep.met[at]:
			d.Lost++
			rep.lose(at, "no rule of the policy says it")
		default:
			d.Aside++
			rep.note(at, "no packet from outside gets here: rules before it decide, or what it asks cannot be")
		}
	}
	return d
}

// open says why a policy that drops nothing is not what the files say, or "".
func (rs *ruleset) open(list []flat) string {
	if slices.ContainsFunc(list, func(f flat) bool { return f.verdict != pass }) {
		return ""
	}
	if n := len(rs.dropsIn()); n > 0 {
		return fmt.Sprintf("%d rules of the files drop packets that come in, and none of them is in the policy", n)
	}
	return ""
}

// dropsIn lists what drops packets that may come in from outside.
func (rs *ruleset) dropsIn() []place {
	out := map[place]bool{}
	for _, t := range rs.tables {
		leaving := t.reached(func(c *chain) bool { return c.hook == hookOutput })
		other := t.reached(func(c *chain) bool { return c.hook != hookOutput })
		for _, c := range t.order {
			if leaving[c] && !other[c] {
				out[c.policyAt] = true
				c.each(func(r *rule) { out[r.at] = true })
			}
		}
	}
	return slices.DeleteFunc(rs.drops(), func(at place) bool { return out[at] })
}

// trusted is the error that the rules pass all that comes through the devices that were chosen, and drop other packets:
// then others face the outside.
func (rs *ruleset) trusted(devices []string, families family, router bool) error {
	if len(rs.dropsIn()) == 0 || len(rs.outsideDevices()) == 0 {
		return nil
	}
	rep := &report{}
	for _, f := range []family{ipv4, ipv6} {
		if families&f != 0 && len(rs.flatten(f, devices, router, rep)) > 0 {
			return nil
		}
	}
	if slices.ContainsFunc(rs.dropsIn(), func(at place) bool { return rep.isLost[at] }) {
		return nil // they might be met
	}
	named := strings.Join(devices, ", ")
	return &InputError{rs.file, 0, fmt.Sprintf("its rules pass all that comes in through %s, and drop other packets", named),
		fmt.Sprintf("say with --device through which device packets come in from outside; if that is %s, say so", named)}
}

// needed is rules without those that decide nothing: all their packets meet one before, or the same verdict behind.
func needed(list []flat, rep *report) (kept []flat) {
	if len(list) > maxCompared {
		return list
	}
	for i := range list {
		f := &list[i]
		of := f.implied()
		by := -1
		for j := range kept {
			if k := &kept[j]; k.over == nil && k.coversAll(&f.cond, &of) {
				by = j
				break
			}
		}
		if by >= 0 {
			rep.shadow(*f, kept[by])
			continue
		}
		plain := f.comment == "" && f.src == (addrTest{}) && f.dst == (addrTest{}) // a list of addresses is one that somebody keeps
		if same := f.sameBehind(list[i+1:], &of); same != nil && (plain || f.over != nil) {
			same.at = append(slices.Clip(same.at), f.at...)
			continue
		}
		kept = append(kept, *f)
	}
	return kept
}

// maxCompared is how many rules are compared with each other.
const maxCompared = 3000

// sameBehind is the rule that gives all packets of f the same verdict if f does not, or nil.
func (f *flat) sameBehind(list []flat, of *[packet.NumKeys]values) *flat {
	for i := range list {
		g := &list[i]
		if g.verdict != f.verdict {
			return nil
		}
		if g.over == nil && g.coversAll(&f.cond, of) {
			return g
		}
	}
	return nil
}
