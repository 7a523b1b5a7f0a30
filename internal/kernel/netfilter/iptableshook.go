// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Hook is a jump from a built-in chain to a chain of a generation.
type Hook struct {
	Table, Chain string // such as raw, PREROUTING
	Target       string // the generation's chain
	Device       string // "": any device
	Output       bool   // whether Device is the output device
}

func (h Hook) spec() string {
	option := "-i "
	if h.Output {
		option = "-o "
	}
	if h.Device == "" {
		return "-j " + h.Target
	}
	return option + h.Device + " -j " + h.Target
}

// guardForm matches the guard in a hook.
var guardForm = wording.Regexp(`-m set (! )?--match-set \S+-(?:trial|aside)[46] src `)

// plain returns a hook without its guard.
func plain(r iptablesRule) iptablesRule {
	r.spec = guardForm().ReplaceAllString(r.spec, "")
	return r
}

// guarded returns a hook with a guard: the hook applies only if the source address is in the set, or with the operator "! " only if it is not. The
// set has all addresses or none.
func guarded(r iptablesRule, operator, set string) iptablesRule {
	r = plain(r)
	at := strings.LastIndex(r.spec, "-j ")
	r.spec = r.spec[:at] + "-m set " + operator + "--match-set " + set + " src " + r.spec[at:]
	return r
}

// hooks lists the hooks of the named generations in a table.
func (s *iptablesSaved) hooks(names ...string) (list []iptablesRule) {
	built := map[string]bool{}
	for _, c := range s.chains {
		built[c.name] = c.built
	}
	for _, r := range s.rules {
		if built[r.chain] && slices.ContainsFunc(names, func(n string) bool { return ownChain(n, r.target()) }) {
			list = append(list, r)
		}
	}
	return list
}

// rehook replaces the hooks of the named generations in a family by the hooks that change returns for each table. It inserts the new hooks at the top
// of their chains, in their order, and removes the old ones. Each table changes atomically.
func (f *family) rehook(ctx context.Context, names []string, change func(table string, now []iptablesRule) []iptablesRule) error {
	tables, err := f.read(ctx)
	if err != nil {
		return err
	}
	var script strings.Builder
	for _, table := range iptablesTables {
		var now []iptablesRule
		for _, s := range tables {
			if s.table == table {
				now = append(now, s.hooks(names...)...)
			}
		}
		script.WriteString(exchange(table, now, change(table, now)))
	}
	if err := f.apply(ctx, script.String()); err != nil {
		return fmt.Errorf("hooks of IPv%s: %w", f.version, err)
	}
	return nil
}

// exchange returns a script that replaces the hooks of a table. It returns "" when the old and new hooks are the same.
func exchange(table string, now, want []iptablesRule) string {
	same := func(a, b iptablesRule) bool { return a.chain == b.chain && a.spec == b.spec }
	if slices.EqualFunc(now, want, same) {
		return ""
	}
	lines := []string{"*" + table}
	for _, r := range slices.Backward(want) {
		lines = append(lines, "-I "+r.chain+" 1 "+r.spec)
	}
	for _, r := range now {
		lines = append(lines, "-D "+r.chain+" "+r.spec)
	}
	return strings.Join(append(lines, "COMMIT"), "\n") + "\n"
}

// of selects the hooks of a generation.
func of(name string, hooks []iptablesRule) (own []iptablesRule) {
	for _, r := range hooks {
		if ownChain(name, r.target()) {
			own = append(own, r)
		}
	}
	return own
}

// bare removes the guards from the hooks of a generation. The hooks of other generations stay unchanged.
func (f *family) bare(ctx context.Context, name string) error {
	return f.rehook(ctx, []string{name}, func(_ string, now []iptablesRule) (want []iptablesRule) {
		for _, r := range now {
			want = append(want, plain(r))
		}
		return want
	})
}

// remove removes the hooks and the chains of a generation, atomically in each table.
func (f *family) remove(ctx context.Context, name string) error {
	tables, err := f.read(ctx)
	if err != nil {
		return err
	}
	var script strings.Builder
	for _, t := range tables {
		var lines, last []string
		for _, r := range t.hooks(name) {
			lines = append(lines, "-D "+r.chain+" "+r.spec)
		}
		for _, c := range t.chains {
			if ownChain(name, c.name) {
				lines, last = append(lines, "-F "+c.name), append(last, "-X "+c.name)
			}
		}
		if lines = append(lines, last...); lines != nil {
			fmt.Fprintf(&script, "*%s\n%s\nCOMMIT\n", t.table, strings.Join(lines, "\n"))
		}
	}
	if err := f.apply(ctx, script.String()); err != nil {
		return fmt.Errorf("hooks and chains of IPv%s: %w", f.version, err)
	}
	return nil
}
