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

// nftRules is a table of family inet.
type nftRules struct {
	name    string
	listing string
}

// nftWitness is the name of the table with the witnesses.
const nftWitness = "witness"

// around has the priorities of the witnesses before and after the rules of each hook. At prerouting, the rules that decide run before -400, at which
// the kernel reassembles fragments (NF_IP_PRI_CONNTRACK_DEFRAG of include/uapi/linux/netfilter_ipv4.h). So the second witness there also runs before
// -400.
var around = map[Hook][2]int{Ingress: {-500, 500}, Prerouting: {-500, -401}, Input: {-10, 10}, Forward: {-10, 10}}

// Patterns for lines of a listing. Guards prevent a generation from deciding, depending on the trial of the generation or of its successor
// (internal/kernel/netfilter/nftguard.go). The state of the prefixes in limits cannot be copied, so limits start empty.
var (
	nftCounts = wording.Regexp(`packets \d+ bytes \d+`)
	nftGuard  = wording.Regexp(`(?m)^.*comment "floodwall: trial"$\n`)
	nftLimits = wording.Regexp(`\t\telements = \{[^}]* limit rate over [^}]*\}\n`)
	nftHook   = wording.Regexp(`(?m)^\s*type filter hook (\w+)`)
)

func (r *nftRules) read(ctx context.Context) error {
	out, err := run(ctx, "", "nft", "list", "table", "inet", r.name)
	if err != nil {
		return fmt.Errorf("reading table %s: %w", r.name, err)
	}
	if tagged, err := run(ctx, "", "nft", "list", "table", "netdev", r.name); err == nil { // not every generation has this table
		out += tagged
	}
	out = nftCounts().ReplaceAllString(out, "packets 0 bytes 0")
	r.listing = nftLimits().ReplaceAllString(nftGuard().ReplaceAllString(out, ""), "")
	return nil
}

func (r *nftRules) has(h Hook) bool {
	return slices.ContainsFunc(nftHook().FindAllStringSubmatch(r.listing, -1), func(m []string) bool { return m[1] == string(h) })
}

func (r *nftRules) stateful() bool { return strings.Contains(r.listing, "ct state ") }

func (r *nftRules) load(ctx context.Context, w witness) error {
	if _, err := run(ctx, r.listing+w.table(), "nft", "-f", "-"); err != nil {
		return fmt.Errorf("loading the copy of table %s: %w", r.name, err)
	}
	return nil
}

// table returns a script for a table with counters before and after the rules of each hook.
func (w witness) table() string {
	var counters, chains []string
	count := func(name string) string {
		counters = append(counters, fmt.Sprintf("counter %s {}", name))
		return "counter name " + quoted(name)
	}
	chain := func(h Hook, priority int, rules ...string) {
		on := ""
		if h == Ingress {
			on = " device " + quoted(w.device)
		}
		chains = append(chains, fmt.Sprintf("chain c%d { type filter hook %s%s priority %d; policy accept; %s; }",
			len(chains), h, on, priority, strings.Join(rules, "; ")))
	}
	for _, h := range hooks {
		chain(h, around[h][0], count(seen(h)))
		chain(h, around[h][1], count(passed(h)))
	}
	if w.untracked {
		chain(Prerouting, -299, "notrack") // after all rules at raw, and before conntrack at -200
	}
	if w.states {
		for _, state := range states {
			rule := "ct state " + state + " " + count(counted(state))
			chain(Input, around[Input][0], rule)
			chain(Forward, around[Forward][0], "ct state "+state+" counter name "+quoted(counted(state)))
		}
	}
	return lines("table inet "+nftWitness+" {", strings.Join(append(counters, chains...), "\n"), "}")
}

func (r *nftRules) counts(ctx context.Context) (part, witness map[string]netfilter.Count, err error) {
	n, err := netfilter.FindNft(ctx)
	if err != nil {
		return nil, nil, err
	}
	if part, err = n.Counters(ctx, r.name); err != nil {
		return nil, nil, err
	}
	witness, err = n.Counters(ctx, nftWitness)
	return part, witness, err
}
