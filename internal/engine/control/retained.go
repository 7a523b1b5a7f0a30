package control

import (
	"context"
	"errors"
	"slices"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// proxyTable is the table that keeps SYNPROXY at work on connections that it began before the policy did without.
// Another name would leave the tables of earlier versions behind.
func (in Instance) proxyTable() string { return in.namePrefix() + "begun" }

// retainProxy lets connections go on that SYNPROXY has started for generations which are to end, when it is no part of what
// follows, nil for nothing.
func (in Instance) retainProxy(ctx context.Context, ending []*manifest.Manifest, next *manifest.Manifest) error {
	if next.Strict() || !slices.ContainsFunc(ending, (*manifest.Manifest).Strict) {
		return nil
	}
	n, err := netfilter.FindNft(ctx)
	if err != nil {
		return nil // a host with iptables alone: they end
	}
	proxied, err := facts.HasProxied()
	if !proxied || err != nil {
		return err
	}
	return n.RetainProxy(ctx, in.proxyTable())
}

// Retained is the table that is left in nftables for connections that SYNPROXY began, "" when none is. It decides nothing.
func (in Instance) Retained(context.Context) (table string, err error) {
	there, err := netfilter.HasTable(in.proxyTable())
	if !there || err != nil {
		return "", orNoRight(err)
	}
	return in.proxyTable(), nil
}

// releaseProxy removes what retainProxy has left when none of those connections is left. It reports whether it did.
func (in Instance) releaseProxy(ctx context.Context) (released bool, err error) {
	table, err := in.Retained(ctx)
	if table == "" || err != nil {
		return false, err
	}
	if proxied, err := facts.HasProxied(); proxied || err != nil {
		return false, err
	}
	err = new(netfilter.Nft).Remove(ctx, table)
	return err == nil, err
}

// Release removes what unload or apply have left for connections that SYNPROXY began, when none of those is left. It
// reports whether it did.
func (in Instance) Release(ctx context.Context) (released bool, err error) {
	release := func(*datapath.State) (err error) {
		released, err = in.releaseProxy(ctx)
		return err
	}
	if err = in.locked(ctx, release); errors.Is(err, datapath.ErrNotLoaded) {
		err = release(nil)
	}
	return released, err
}
