package control

import (
	"context"
	"slices"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/netfilter"
)

// proxyTable is the table that keeps SYNPROXY at work on connections that it began before the policy did without.
func (in Instance) proxyTable() string { return in.partPrefix() + "begun" }

// retainProxy lets connections go on that SYNPROXY has begun for generations which are to end, when it is no part of what
// follows, nil for nothing.
func (in Instance) retainProxy(ctx context.Context, ending []*manifest, next *manifest) error {
	if next.strict() || !slices.ContainsFunc(ending, (*manifest).strict) {
		return nil
	}
	n, err := netfilter.FindNft(ctx)
	if err != nil {
		return nil // a host with iptables alone: they end
	}
	begun, err := datapath.HasProxied()
	if !begun || err != nil {
		return err
	}
	return n.RetainProxy(ctx, in.proxyTable())
}

// releaseProxy removes what retainProxy has left when none of those connections is left.
func (in Instance) releaseProxy(ctx context.Context) error {
	n, err := netfilter.FindNft(ctx)
	if err != nil {
		return nil // there is no such table without nft
	}
	if _, err := n.Counters(ctx, in.proxyTable()); unlessAbsent(err) != nil || err != nil {
		return unlessAbsent(err)
	}
	if begun, err := datapath.HasProxied(); begun || err != nil {
		return err
	}
	return n.Remove(ctx, in.proxyTable())
}
