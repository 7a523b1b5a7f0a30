// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Restore loads the table in force again, after other programs have removed or changed parts of it. It replaces the table in one transaction, so that
// the remaining parts decide until then. On kernels before 6.16 a chain cannot be bound to a missing device, so such devices are left out.
func (n *Nft) Restore(ctx context.Context, t Table) error {
	if _, err := readTable(t.Script, t.Name); err != nil {
		return fmt.Errorf("restoring table %s: %w", t.Name, err)
	}
	try := func(script string) error {
		lines := append([]string{"add table inet " + t.Name}, removal(t.Name)...)
		return n.script(ctx, append(lines, "create table inet "+t.Name, script)...)
	}
	err := try(t.Script)
	if err != nil {
		if present := withoutAbsent(t.Script); present != t.Script {
			err = try(present)
		}
	}
	if err == nil {
		err = n.fillSets(ctx, t)
	}
	if err == nil {
		err = n.Verify(ctx, t)
	}
	if err != nil {
		return fmt.Errorf("restoring table %s: %w", t.Name, err)
	}
	return nil
}

var (
	ingressDevices = wording.Regexp(`hook ingress (?:devices = \{([^}]*)\}|device ("[^"]*"))`)
	quotedDevice   = wording.Regexp(`"[^"]*"`)
)

// withoutAbsent returns a script whose chains are bound only to existing devices. If no device of a chain exists, the chain stays unchanged.
func withoutAbsent(script string) string {
	return ingressDevices().ReplaceAllStringFunc(script, func(hook string) string {
		list := quotedDevice().FindAllString(hook, -1)
		list = slices.DeleteFunc(list, func(d string) bool { return absent(strings.Trim(d, `"`)) })
		if len(list) == 0 {
			return hook
		}
		return "hook ingress devices = { " + strings.Join(list, ", ") + " }"
	})
}

// absent reports whether a device does not exist.
func absent(device string) bool {
	_, err := net.InterfaceByName(device)
	return err != nil
}

// Restore loads the generation in force again, after other programs have removed or changed parts of it. It fills the remaining chains in one
// transaction for each table. Until then these chains decide.
func (x *Iptables) Restore(ctx context.Context, r Rules) error {
	if err := r.check(); err != nil {
		return fmt.Errorf("restoring %s: %w", r.Name, err)
	}
	err := x.restoreWrong(ctx, r)
	for _, f := range x.families {
		if err == nil {
			err = f.apply(ctx, r.script(f))
		}
	}
	if err == nil {
		err = x.Verify(ctx, r)
	}
	for set, elements := range r.Fill {
		if err == nil {
			err = x.Insert(ctx, set, elements)
		}
	}
	for _, f := range x.families {
		if err == nil {
			err = f.rehook(ctx, []string{r.Name}, func(table string, _ []iptablesRule) []iptablesRule {
				return r.hooksOf(f, table)
			})
		}
	}
	if err == nil {
		err = x.dropGuards(ctx, r.Name)
	}
	if err == nil {
		err = x.dropSpares(ctx, r.Name)
	}
	if err != nil {
		return fmt.Errorf("restoring %s: %w", r.Name, err)
	}
	return nil
}

// restoreWrong creates the sets that differ from the script again. It fills each set beside the existing one, and swaps the two. Another program may have
// replaced a set by one of another type. Such a set cannot be swapped, and not be destroyed while a rule uses it. A rule of the generation may use it,
// because xt_set compares only dimensions (set_match_v4_checkentry in net/netfilter/xt_set.c). The rules use the spare set until the other one is
// replaced. Restore removes the spare sets.
func (x *Iptables) restoreWrong(ctx context.Context, r Rules) error {
	wrong, err := x.wrongSets(ctx, r)
	if err != nil || len(wrong) == 0 {
		return err
	}
	held, err := x.setNames(ctx)
	var spares []string // pairs of a set that cannot be swapped and its spare, as strings.NewReplacer wants them
	var lines []string
	for i, set := range slices.Sorted(maps.Keys(wrong)) {
		if err != nil {
			break
		}
		if !slices.Contains(held, set) {
			err = x.restoreSets(ctx, r.setLines(set, set)...)
			continue
		}
		spare := fmt.Sprintf("%s%d", sparePrefix(r.Name), i)
		if err = x.restoreSets(ctx, r.setLines(set, spare)...); err == nil && x.swap(ctx, spare, set) != nil {
			spares = append(spares, " "+set+" ", " "+spare+" ")
			lines = append(append(lines, "destroy "+set), r.setLines(set, set)...)
		}
	}
	for _, f := range x.families {
		if err == nil && len(spares) > 0 {
			err = f.apply(ctx, strings.NewReplacer(spares...).Replace(r.script(f)))
		}
	}
	if err == nil {
		err = patiently(ctx, "in use", func() error { return x.restoreSets(ctx, lines...) })
	}
	if err != nil {
		return undo(ctx, err, func(ctx context.Context) error { return x.dropSpares(ctx, r.Name) })
	}
	return nil
}

// sparePrefix is the beginning of the names of a generation's spare sets. No set of a policy has such a name, because these end with the IP version.
func sparePrefix(name string) string { return setsPrefix(name) + "repair" }

// dropSpares removes the spare sets of a generation, also those that a killed process has left.
func (x *Iptables) dropSpares(ctx context.Context, name string) error {
	return x.destroyOwn(ctx, name, func(set string) bool {
		number, ok := strings.CutPrefix(set, sparePrefix(name))
		return ok && strings.Trim(number, "0123456789") == ""
	})
}

// setLines returns the lines of a generation's script that create and fill a set. In these lines it replaces the set's name by name.
func (r *Rules) setLines(set, name string) (lines []string) {
	for line := range strings.Lines(r.IPSet) {
		words := strings.Fields(line)
		if len(words) > 1 && words[1] == set {
			lines = append(lines, strings.Replace(strings.TrimSpace(line), set, name, 1))
		}
	}
	return lines
}

// hooksOf returns the hooks, without guards, that a generation has in a table of a family.
func (r *Rules) hooksOf(f *family, table string) (want []iptablesRule) {
	tables, err := readSaved(r.script(f))
	if err != nil {
		return nil
	}
	for _, h := range r.Hooks {
		if h.Table == table && slices.ContainsFunc(tables, func(t iptablesSaved) bool { return t.has(table, h.Target) }) {
			want = append(want, iptablesRule{chain: h.Chain, spec: h.spec()})
		}
	}
	return want
}

// VerifyHooked is Verify for a generation that decides. It also checks that all hooks of the generation exist.
func (x *Iptables) VerifyHooked(ctx context.Context, r Rules) error {
	list, err := x.differences(ctx, r)
	if err != nil {
		return err
	}
	for _, f := range x.families {
		tables, err := f.read(ctx)
		if err != nil {
			return err
		}
		for _, table := range iptablesTables {
			var now []string
			for _, s := range tables {
				if s.table == table {
					for _, h := range s.hooks(r.Name) {
						now = append(now, h.jump())
					}
				}
			}
			for _, h := range r.hooksOf(f, table) {
				if !slices.Contains(now, h.jump()) {
					list = append(list, fmt.Errorf("no jump from chain %s of table %s to %s for IPv%s", h.chain, table, h.target(), f.version))
				}
			}
		}
	}
	return notAsAsked(r.Name, list)
}

// jump returns a text that identifies a hook.
func (r iptablesRule) jump() string {
	return strings.Join([]string{r.chain, after(r.spec, "-i"), after(r.spec, "-o"), r.target()}, " ")
}
