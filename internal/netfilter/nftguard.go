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
// ends the walk through this chain only; the base chains of other tables see the packet all the same.
func guard(table, set, operator string, chains []string) []string {
	lines := []string{fmt.Sprintf("add set inet %s %s { type nf_proto; flags timeout; }", table, set)}
	for _, chain := range chains {
		lines = append(lines, fmt.Sprintf("insert rule inet %s %s meta nfproto %s @%s accept comment %q",
			table, chain, operator, set, guardComment))
	}
	return lines
}

// enter is a statement that puts both families into a guard's set. It is written as another declaration of the set:
// nft 1.0.6 reads all elements of a table's sets before an `add element`.
func enter(table, set string, timeout time.Duration) string {
	t := writeDuration(timeout)
	return fmt.Sprintf("table inet %s { set %s { type nf_proto; flags timeout; "+
		"elements = { ipv4 timeout %s, ipv6 timeout %s }; }; }", table, set, t, t)
}

// aside is a script that takes the decision from a table for so long.
func (n *Nft) aside(ctx context.Context, table string, trial time.Duration) ([]string, error) {
	objects, err := n.ruleset(ctx)
	if err != nil {
		return nil, fmt.Errorf("chains of table %s: %w", table, err)
	}
	var chains []string
	for _, o := range objects {
		if o.Chain != nil && o.Chain.Table == table && o.Chain.Hook != "" {
			chains = append(chains, o.Chain.Name)
		}
	}
	return append(guard(table, supersededSet, "", chains), enter(table, supersededSet, trial)), nil
}

// unguard is a script that removes a table's guard, if it has one.
func (n *Nft) unguard(ctx context.Context, table, set string) ([]string, error) {
	t, err := n.sets(ctx, table)
	if err != nil || t == nil || t.sets[set] == nil {
		return nil, err
	}
	objects, err := n.ruleset(ctx)
	if err != nil {
		return nil, fmt.Errorf("rules of table %s: %w", table, err)
	}
	var lines []string
	for _, o := range objects {
		if r := o.Rule; r != nil && r.Table == table && r.Comment == guardComment {
			lines = append(lines, "delete rule inet "+table+" "+r.Chain+" handle "+strconv.Itoa(r.Handle))
		}
	}
	return append(lines, "delete set inet "+table+" "+set), nil
}
