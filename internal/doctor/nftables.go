// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
)

// readNftables reads the chains of nftables and the numbers of their rules directly from the kernel. The tool nft prints every rule and set
// completely, which takes seconds if there are many rules.
func readNftables(all chains) error {
	list, err := nftable.Chains(unix.NFPROTO_UNSPEC, "")
	if err != nil {
		return err
	}
	for _, c := range list {
		all.addNftChain(c)
	}
	rules, err := nftable.Rules(unix.NFPROTO_UNSPEC, "")
	for _, r := range rules {
		all.addNftRule(r)
	}
	return err
}

func (c chains) addNftChain(from *nftable.Chain) {
	chain := c.at(place{nftables, nftable.FamilyName(from.Family), from.Table}, from.Name)
	chain.nat, chain.uses = from.Type == "nat", from.Uses
	if from.Hook != nil {
		chain.hook, chain.priority = hook(from.Hook.Number), int(from.Hook.Priority)
		if from.Family == unix.NFPROTO_NETDEV {
			chain.hook += ingress // the family netdev has the numbers 0 for ingress and 1 for egress
		}
	}
}

func (c chains) addNftRule(r *nftable.Rule) {
	chain := c.at(place{nftables, nftable.FamilyName(r.Family), r.Table}, r.Chain)
	chain.rules++
	conditional := false
	for _, e := range r.Expressions {
		if verdict, is := e.(nftable.Immediate); is && verdict.Verdict.Chain != "" {
			chain.jumps = append(chain.jumps, jump{verdict.Verdict.Chain, conditional})
		}
		conditional = conditional || decides(e)
	}
}

// decides reports whether an nft expression can end the evaluation of its rule.
func decides(e nftable.Expression) bool {
	switch e := e.(type) {
	case nftable.Cmp, nftable.Range, nftable.Lookup, nftable.Limit, nftable.Connlimit, nftable.Dynset:
		return true
	case nftable.Unknown:
		return slices.Contains([]string{"cmp", "range", "lookup", "match", "limit", "quota", "connlimit", "fib", "dynset", "socket"}, e.Name)
	}
	return false
}
