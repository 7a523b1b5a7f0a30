// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
)

// The sets and rules that prevent a table from deciding. The sets have protocol families as elements, so that a lookup needs no data of the packet.
// Both families are added at the same time. The names cannot collide with names of a policy, because no such name starts with an underscore.
const (
	trialSet      = "_trial"
	supersededSet = "_superseded"
	guardComment  = "floodwall: trial"
)

// guard returns a script that adds a guard to the given base chains: an empty set, and a first rule that looks up the set and accepts. The verdict
// accept ends only the evaluation of this chain. The base chains of other tables still see the packet.
func guard(table, set, operator string, chains []string) []string {
	return append([]string{fmt.Sprintf("add set inet %s %s { type nf_proto; flags timeout; }", table, set)}, ask(table, set, operator, chains)...)
}

// ask returns the rules of a guard for the given chains.
func ask(table, set, operator string, chains []string) (lines []string) {
	for _, chain := range chains {
		lines = append(lines, fmt.Sprintf("insert rule inet %s %s meta nfproto %s @%s accept comment %q",
			table, chain, operator, set, guardComment))
	}
	return lines
}

// enter returns a statement that adds both protocol families to a guard's set. The statement is another declaration of the set, because nft 1.0.6
// reads all elements of a table's sets before an `add element`. If tagged is true, the statement does the same for the set in the table of family
// netdev.
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

// asking returns a script that adds rules to all base chains of a table. The rules look up an existing set.
func asking(table, set string) ([]string, error) {
	inner, err := baseChains(unix.NFPROTO_INET, table)
	if err != nil {
		return nil, err
	}
	tagged, err := baseChains(unix.NFPROTO_NETDEV, table)
	return append(ask(table, set, "", inner), askTagged(table, set, "", tagged)...), err
}

// baseChains returns the chains of a table that have a hook.
func baseChains(family uint8, table string) (names []string, err error) {
	chains, err := nftable.Chains(family, table)
	for _, c := range chains {
		if c.Hook != nil {
			names = append(names, c.Name)
		}
	}
	return names, err
}

// unask returns a script that removes the rules that look up a guard's set, and applies a verb to the set. It returns nil when there is no such set.
func unask(table, set, verb string) (lines []string, err error) {
	sets, err := nftable.Sets(unix.NFPROTO_INET, table)
	if err != nil || nftable.Named(sets, set) == nil {
		return nil, err
	}
	rules, err := askers(table)
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		lines = append(lines, fmt.Sprintf("delete rule %s %s %s handle %d", nftable.FamilyName(r.Family), table, r.Chain, r.Handle))
	}
	tagged, err := isTagged(table)
	return append(lines, onSets(verb, table, set, tagged)...), err
}

// onSets returns the lines that apply a verb to a guard's set, in each table that has the set.
func onSets(verb, table, set string, tagged bool) []string {
	lines := []string{verb + " set inet " + table + " " + set}
	if tagged {
		lines = append(lines, verb+" set netdev "+table+" "+set)
	}
	return lines
}

// askers returns the rules of a table's guard.
func askers(table string) (rules []*nftable.Rule, err error) {
	for _, family := range nftFamilies {
		all, err := nftable.Rules(family, table)
		if err != nil {
			return nil, err
		}
		rules = append(rules, slices.DeleteFunc(all, func(r *nftable.Rule) bool { return r.Comment != guardComment })...)
	}
	return rules, nil
}

// unguard returns a script that removes a table's guard, if it has one.
func unguard(table, set string) ([]string, error) { return unask(table, set, "delete") }
