package netfilter

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// The sets and rules that keep a table from deciding. The sets hold protocol families, so that a lookup needs nothing
// of the packet; both families enter at the same time. No name of a policy begins with a line.
const (
	trialSet      = "_trial"
	supersededSet = "_superseded"
	guardComment  = "floodwall: trial"
)

// guard is a script that adds a guard to these base chains: an empty set, and a first rule that accepts by it. Accept
// ends the evaluation of this chain only; the base chains of other tables see the packet all the same.
func guard(table, set, operator string, chains []string) []string {
	return append([]string{fmt.Sprintf("add set inet %s %s { type nf_proto; flags timeout; }", table, set)}, ask(table, set, operator, chains)...)
}

// ask are the rules of a guard.
func ask(table, set, operator string, chains []string) (lines []string) {
	for _, chain := range chains {
		lines = append(lines, fmt.Sprintf("insert rule inet %s %s meta nfproto %s @%s accept comment %q",
			table, chain, operator, set, guardComment))
	}
	return lines
}

// enter is a statement that puts both families into a guard's set. It is written as another declaration of the set:
// nft 1.0.6 reads all elements of a table's sets before an `add element`.
// With tagged the table of family netdev has the set, too.
func enter(table, set string, timeout time.Duration, tagged bool) string {
	t := writeDuration(timeout)
	script := fmt.Sprintf("table inet %s { set %s { type nf_proto; flags timeout; "+
		"elements = { ipv4 timeout %s, ipv6 timeout %s }; }; }", table, set, t, t)
	if tagged {
		script += fmt.Sprintf("\ntable netdev %s { set %s { type %s; flags timeout; elements = { %s }; }; }",
			table, set, taggedType, fmt.Sprintf(taggedElements, t))
	}
	return script
}

// asking is a script that has all base chains of a table ask a set that is there.
func (n *Nft) asking(ctx context.Context, table, set string) ([]string, error) {
	objects, err := n.ruleset(ctx)
	if err != nil {
		return nil, fmt.Errorf("chains of table %s: %w", table, err)
	}
	chains := map[string][]string{}
	for _, o := range objects {
		if c := o.Chain; c != nil && c.Table == table && c.Hook != "" {
			chains[c.Family] = append(chains[c.Family], c.Name)
		}
	}
	return append(ask(table, set, "", chains["inet"]), askTagged(table, set, "", chains["netdev"])...), nil
}

// unask is a script after which nothing asks a guard's set, and what a verb does to the set; nil when there is no such set.
func (n *Nft) unask(ctx context.Context, table, set, verb string) (lines []string, err error) {
	t, err := n.sets(ctx, table)
	if err != nil || t == nil || t.sets[set] == nil {
		return nil, err
	}
	rules, err := n.askers(ctx, table)
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		lines = append(lines, "delete rule "+r.Family+" "+table+" "+r.Chain+" handle "+strconv.Itoa(r.Handle))
	}
	tagged, err := n.tagged(ctx, table)
	return append(lines, onSets(verb, table, set, tagged)...), err
}

// onSets does something to a guard's set in each table that has it.
func onSets(verb, table, set string, tagged bool) []string {
	lines := []string{verb + " set inet " + table + " " + set}
	if tagged {
		lines = append(lines, verb+" set netdev "+table+" "+set)
	}
	return lines
}

// askers are the rules of a table's guard.
func (n *Nft) askers(ctx context.Context, table string) (rules []*nftRule, err error) {
	objects, err := n.ruleset(ctx)
	if err != nil {
		return nil, fmt.Errorf("rules of table %s: %w", table, err)
	}
	for _, o := range objects {
		if r := o.Rule; r != nil && r.Table == table && r.Comment == guardComment {
			rules = append(rules, r)
		}
	}
	return rules, nil
}

// unguard is a script that removes a table's guard, if it has one.
func (n *Nft) unguard(ctx context.Context, table, set string) ([]string, error) {
	return n.unask(ctx, table, set, "delete")
}
