// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// iptablesRules is a generation of chains and ipsets, for one family.
type iptablesRules struct {
	name   string
	six    bool
	tables map[string]*iptablesTable
	sets   string // script for ipset restore
}

// iptablesTable is the part of a generation in a table: its chains, the jumps from built-in chains to them, and its rules.
type iptablesTable struct{ chains, jumps, rules []string }

// iptablesHooks are the tables and built-in chains of the hooks.
var iptablesHooks = map[Hook]struct{ table, chain string }{
	Prerouting: {"raw", "PREROUTING"}, Input: {"filter", "INPUT"}, Forward: {"filter", "FORWARD"},
}

// iptablesGuard matches the guard of a jump. The guard disables the jump, depending on the trial of the generation or of its successor
// (internal/kernel/netfilter/iptableshook.go).
var iptablesGuard = wording.Regexp(`-m set (! )?--match-set \S+-(?:trial|aside)[46] src `)

// program returns the name of an iptables program for the family.
func (r *iptablesRules) program(what string) string {
	if r.six {
		return "ip6tables-" + what
	}
	return "iptables-" + what
}

func (r *iptablesRules) read(ctx context.Context) error {
	r.tables = map[string]*iptablesTable{}
	for _, table := range []string{"raw", "filter"} {
		out, err := run(ctx, "", r.program("save"), "-t", table)
		if err != nil {
			return fmt.Errorf("reading table %s: %w", table, err)
		}
		r.tables[table] = r.own(out)
	}
	return r.readSets(ctx)
}

// own selects the lines of a saved table that belong to the generation.
func (r *iptablesRules) own(saved string) *iptablesTable {
	t := &iptablesTable{}
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		words := append(strings.Fields(line), "", "")
		switch {
		case strings.HasPrefix(line, ":") && r.ownChain(words[0][1:]):
			t.chains = append(t.chains, words[0]+" - [0:0]")
		case words[0] == "-A" && r.ownChain(words[1]):
			t.rules = append(t.rules, line)
		case words[0] == "-A" && r.ownChain(jump(words)):
			t.jumps = append(t.jumps, iptablesGuard().ReplaceAllString(line, ""))
		}
	}
	return t
}

func (r *iptablesRules) ownChain(chain string) bool {
	return chain == r.name || strings.HasPrefix(chain, r.name+"-")
}

// jump returns the target of a rule's jump.
func jump(words []string) string {
	if at := slices.Index(words, "-j"); at >= 0 {
		return words[at+1]
	}
	return ""
}

// readSets reads the generation's ipsets, except the sets of guards.
func (r *iptablesRules) readSets(ctx context.Context) error {
	names, err := run(ctx, "", "ipset", "list", "-n")
	if err != nil {
		return fmt.Errorf("listing ipsets: %w", err)
	}
	prefix := strings.ToLower(r.name) + "-"
	for _, name := range strings.Fields(names) {
		of, own := strings.CutPrefix(name, prefix)
		if !own || slices.Contains([]string{"trial4", "trial6", "aside4", "aside6"}, of) {
			continue
		}
		out, err := run(ctx, "", "ipset", "save", name)
		if err != nil {
			return fmt.Errorf("reading set %s: %w", name, err)
		}
		r.sets += out
	}
	return nil
}

func (r *iptablesRules) has(h Hook) bool {
	at, ok := iptablesHooks[h]
	return ok && slices.ContainsFunc(r.tables[at.table].jumps, func(line string) bool {
		return strings.HasPrefix(line, "-A "+at.chain+" ")
	})
}

func (r *iptablesRules) stateful() bool {
	for _, t := range r.tables {
		if slices.ContainsFunc(t.rules, func(line string) bool { return strings.Contains(line, " --ctstate ") }) {
			return true
		}
	}
	return false
}

func (r *iptablesRules) load(ctx context.Context, w witness) error {
	if _, err := run(ctx, r.sets, "ipset", "restore"); err != nil {
		return fmt.Errorf("loading the copies of sets: %w", err)
	}
	script := r.script("raw", w) + r.script("filter", w)
	const lockWait = "30" // seconds to wait for the machine-wide lock of iptables
	if _, err := run(ctx, script, r.program("restore"), "--noflush", "-w", lockWait); err != nil {
		return fmt.Errorf("loading the copy of the chains: %w", err)
	}
	return nil
}

// script returns the script for one table of the copy. The witnesses are in chains with the generation's name, so that Counters also returns their
// counts.
func (r *iptablesRules) script(table string, w witness) string {
	t := r.tables[table]
	chains, jumps, rules := slices.Clone(t.chains), []string{}, slices.Clone(t.rules)
	count := func(from, comment, match string) {
		chain := fmt.Sprintf("%s-w%d", r.name, len(chains))
		chains = append(chains, ":"+chain+" - [0:0]")
		jumps = append(jumps, "-A "+from+" -j "+chain)
		rules = append(rules, "-A "+chain+match+" -m comment --comment "+iptablesWitness+comment)
	}
	around := func(each func(Hook, string)) {
		for _, h := range hooks {
			if at := iptablesHooks[h]; at.table == table {
				each(h, at.chain)
			}
		}
	}
	around(func(h Hook, chain string) {
		count(chain, seen(h), "")
		for _, state := range states {
			if w.states && h != Prerouting {
				count(chain, counted(state), " -m conntrack --ctstate "+strings.ToUpper(state))
			}
		}
	})
	jumps = append(jumps, t.jumps...)
	around(func(h Hook, chain string) { count(chain, passed(h), "") })
	if w.untracked && table == "raw" {
		jumps = append(jumps, "-A PREROUTING -j CT --notrack")
	}
	return lines("*"+table, strings.Join(slices.Concat(chains, jumps, rules), "\n"), "COMMIT")
}

// iptablesWitness is the prefix of the comments of witnesses.
const iptablesWitness = "witness:"

func (r *iptablesRules) counts(ctx context.Context) (part, witness map[string]netfilter.Count, err error) {
	x, err := netfilter.FindIptables()
	if err != nil {
		return nil, nil, err
	}
	all, err := x.Counters(ctx, r.name)
	part, witness = map[string]netfilter.Count{}, map[string]netfilter.Count{}
	for comment, count := range all {
		if of, ok := strings.CutPrefix(comment, iptablesWitness); ok {
			witness[of] = count
		} else {
			part[comment] = count
		}
	}
	return part, witness, err
}
