// SPDX-License-Identifier: Apache-2.0

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

// proxyTable returns the name of the table that keeps SYNPROXY working for open connections after the policy no longer uses it. The name must not
// change, because earlier versions use it, too.
func (in Instance) proxyTable() string { return in.namePrefix() + "begun" }

// retainProxy keeps SYNPROXY working for the open connections of the ending generations, if next does not use SYNPROXY. next is nil if no generation
// follows.
func (in Instance) retainProxy(ctx context.Context, ending []*manifest.Manifest, next *manifest.Manifest) error {
	if next.Strict() || !slices.ContainsFunc(ending, (*manifest.Manifest).Strict) {
		return nil
	}
	n, err := netfilter.FindNft(ctx)
	if err != nil {
		return nil // a host with iptables only: these connections end
	}
	proxied, err := facts.HasProxied()
	if !proxied || err != nil {
		return err
	}
	return n.RetainProxy(ctx, in.proxyTable())
}

// Retained returns the name of the table in nftables that is kept for open connections of SYNPROXY. It returns "" when there is none. The table
// decides nothing.
func (in Instance) Retained(context.Context) (table string, err error) {
	there, err := netfilter.HasTable(in.proxyTable())
	if !there || err != nil {
		return "", orNoRight(err)
	}
	return in.proxyTable(), nil
}

// releaseProxy removes the table of retainProxy when no connection of SYNPROXY is left. It returns true if it has removed the table.
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

// Release removes the table that unload or apply has kept for open connections of SYNPROXY, when no such connection is left. It returns true if it
// has removed the table.
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
