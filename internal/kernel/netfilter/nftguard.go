package netfilter

import (
	"fmt"
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
func asking(table, set string) ([]string, error) {
	inner, err := nftBaseChains("inet", table)
	if err != nil {
		return nil, err
	}
	tagged, err := nftBaseChains("netdev", table)
	return append(ask(table, set, "", inner), askTagged(table, set, "", tagged)...), err
}

// unask is a script after which nothing asks a guard's set, and what a verb does to the set; nil when there is no such set.
func unask(table, set, verb string) (lines []string, err error) {
	sets, err := nftSets(table)
	if err != nil || !sets[set] {
		return nil, err
	}
	rules, err := askers(table)
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		lines = append(lines, fmt.Sprintf("delete rule %s %s %s handle %d", r.family, table, r.chain, r.handle))
	}
	tagged, err := isTagged(table)
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
func askers(table string) (rules []nftRule, err error) {
	for family := range nftFamilies {
		of, err := nftRemarks(family, table, guardComment)
		if err != nil {
			return nil, err
		}
		rules = append(rules, of...)
	}
	return rules, nil
}

// unguard is a script that removes a table's guard, if it has one.
func unguard(table, set string) ([]string, error) { return unask(table, set, "delete") }
