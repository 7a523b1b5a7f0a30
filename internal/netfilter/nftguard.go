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
	lines := []string{fmt.Sprintf("add set inet %s %s { type nf_proto; flags timeout; }", table, set)}
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

// aside is a script that takes the decision from a table for so long.
func (n *Nft) aside(ctx context.Context, table string, trial time.Duration) ([]string, error) {
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
	lines, tagged := guard(table, supersededSet, "", chains["inet"]), chains["netdev"] != nil
	if tagged {
		lines = append(lines, guardTagged(table, supersededSet, "", chains["netdev"])...)
	}
	return append(lines, enter(table, supersededSet, trial, tagged)), nil
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
	sets := map[string]bool{"inet": true}
	for _, o := range objects {
		if r := o.Rule; r != nil && r.Table == table && r.Comment == guardComment {
			lines = append(lines, "delete rule "+r.Family+" "+table+" "+r.Chain+" handle "+strconv.Itoa(r.Handle))
			sets[r.Family] = true
		}
	}
	for _, family := range families {
		if sets[family] {
			lines = append(lines, "delete set "+family+" "+table+" "+set)
		}
	}
	return lines, nil
}
