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
	if err != nil {
		return fmt.Errorf("restoring %s: %w", r.Name, err)
	}
	return nil
}

// restoreWrong creates the sets that differ from the script again.
func (x *Iptables) restoreWrong(ctx context.Context, r Rules) error {
	wrong, err := x.wrongSets(ctx, r)
	if err != nil || len(wrong) == 0 {
		return err
	}
	held, err := x.setNames(ctx)
	for _, set := range slices.Sorted(maps.Keys(wrong)) {
		switch {
		case err != nil:
		case slices.Contains(held, set):
			err = x.exchangeSet(ctx, r, set)
		default:
			err = x.restoreSets(ctx, r.setLines(set, set)...)
		}
	}
	return err
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

// exchangeSet replaces an existing set by a new one. Filling the existing set may be impossible: another program may have created it with other
// parameters, by a swap or a restore. No rule uses a set of another type, so such a set is removed.
func (x *Iptables) exchangeSet(ctx context.Context, r Rules, set string) error {
	made := setsPrefix(r.Name) + "repair"
	err := x.restoreSets(ctx, r.setLines(set, made)...)
	if err == nil {
		if x.swap(ctx, made, set) == nil {
			return x.destroy(ctx, []string{made})
		}
		err = x.restoreSets(ctx, "destroy "+set, "rename "+made+" "+set)
	}
	if err == nil {
		return nil
	}
	return undo(ctx, err, func(ctx context.Context) error { return x.restoreSets(ctx, "destroy "+made) })
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
