package replica

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/netfilter"
)

// xtRules is a generation of chains and ipsets, for one family.
type xtRules struct {
	name   string
	six    bool
	tables map[string]*xtTable
	sets   string // for ipset restore
}

// xtTable is what a generation has in a table: its chains, the jumps to them from built-in chains, and rules.
type xtTable struct{ chains, jumps, rules []string }

// xtHooks are the built-in chains at the hooks, with their tables.
var xtHooks = map[Hook]struct{ table, chain string }{
	Prerouting: {"raw", "PREROUTING"}, Input: {"filter", "INPUT"}, Forward: {"filter", "FORWARD"},
}

// xtGuard is what keeps a jump from being taken while the generation is on trial, or its successor is
// (internal/netfilter/xthook.go).
var xtGuard = regexp.MustCompile(`-m set (! )?--match-set \S+-(?:trial|aside)[46] src `)

// program is a program of the family.
func (r *xtRules) program(what string) string {
	if r.six {
		return "ip6tables-" + what
	}
	return "iptables-" + what
}

func (r *xtRules) read(ctx context.Context) error {
	r.tables = map[string]*xtTable{}
	for _, table := range []string{"raw", "filter"} {
		out, err := run(ctx, "", r.program("save"), "-t", table)
		if err != nil {
			return fmt.Errorf("reading table %s: %w", table, err)
		}
		r.tables[table] = r.own(out)
	}
	return r.readSets(ctx)
}

// own selects what belongs to the generation.
func (r *xtRules) own(saved string) *xtTable {
	t := &xtTable{}
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		words := append(strings.Fields(line), "", "")
		switch {
		case strings.HasPrefix(line, ":") && r.ownChain(words[0][1:]):
			t.chains = append(t.chains, words[0]+" - [0:0]")
		case words[0] == "-A" && r.ownChain(words[1]):
			t.rules = append(t.rules, line)
		case words[0] == "-A" && r.ownChain(jump(words)):
			t.jumps = append(t.jumps, xtGuard.ReplaceAllString(line, ""))
		}
	}
	return t
}

func (r *xtRules) ownChain(chain string) bool {
	return chain == r.name || strings.HasPrefix(chain, r.name+"-")
}

// jump is where a rule jumps.
func jump(words []string) string {
	if at := slices.Index(words, "-j"); at >= 0 {
		return words[at+1]
	}
	return ""
}

// readSets reads the generation's ipsets, less those of guards.
func (r *xtRules) readSets(ctx context.Context) error {
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

func (r *xtRules) has(h Hook) bool {
	at, ok := xtHooks[h]
	return ok && slices.ContainsFunc(r.tables[at.table].jumps, func(line string) bool {
		return strings.HasPrefix(line, "-A "+at.chain+" ")
	})
}

func (r *xtRules) stateful() bool {
	for _, t := range r.tables {
		if slices.ContainsFunc(t.rules, func(line string) bool { return strings.Contains(line, " --ctstate ") }) {
			return true
		}
	}
	return false
}

func (r *xtRules) load(ctx context.Context, w witness) error {
	if _, err := run(ctx, r.sets, "ipset", "restore"); err != nil {
		return fmt.Errorf("loading the copies of sets: %w", err)
	}
	script := r.script("raw", w) + r.script("filter", w)
	const lockWait = "30" // seconds, for the lock that iptables has for the whole machine
	if _, err := run(ctx, script, r.program("restore"), "--noflush", "-w", lockWait); err != nil {
		return fmt.Errorf("loading the copy of the chains: %w", err)
	}
	return nil
}

// script is one table of the copy, with the witnesses in chains of the generation's name, so that their counts are
// among its own.
func (r *xtRules) script(table string, w witness) string {
	t := r.tables[table]
	chains, jumps, rules := slices.Clone(t.chains), []string{}, slices.Clone(t.rules)
	count := func(from, comment, match string) {
		chain := fmt.Sprintf("%s-w%d", r.name, len(chains))
		chains = append(chains, ":"+chain+" - [0:0]")
		jumps = append(jumps, "-A "+from+" -j "+chain)
		rules = append(rules, "-A "+chain+match+" -m comment --comment "+xtWitness+comment)
	}
	around := func(each func(Hook, string)) {
		for _, h := range hooks {
			if at := xtHooks[h]; at.table == table {
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

// xtWitness is what the comments of witnesses begin with.
const xtWitness = "witness:"

func (r *xtRules) counts(ctx context.Context) (part, witness map[string]netfilter.Count, err error) {
	x, err := netfilter.FindXt()
	if err != nil {
		return nil, nil, err
	}
	all, err := x.Counters(ctx, r.name)
	part, witness = map[string]netfilter.Count{}, map[string]netfilter.Count{}
	for comment, count := range all {
		if of, ok := strings.CutPrefix(comment, xtWitness); ok {
			witness[of] = count
		} else {
			part[comment] = count
		}
	}
	return part, witness, err
}
