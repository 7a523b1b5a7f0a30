// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// FillLocal adds the host's own addresses to an empty set. number is the index of the set.
func FillLocal(sets *addrs.Dynamic, number int) error {
	to := sets.Sets[number]
	own, err := facts.LocalPrefixes()
	if err != nil {
		return err
	}
	for _, p := range own {
		err := to.Insert(addrs.Entry{Prefix: p}, Now())
		if errors.Is(err, addrs.ErrFull) {
			return tooManyOwn(to)
		}
		if err != nil {
			return fmt.Errorf("own addresses %s: %w", addrs.PrefixText(p), err)
		}
	}
	sets.ShowOwn(own)
	return nil
}

// UpdateLocal changes the content of a set to the host's present addresses. number is the index of the set. UpdateLocal inserts before it removes, so
// the set never lacks an address of the host.
func UpdateLocal(sets *addrs.Dynamic, number int) (added, removed int, err error) {
	set, now := sets.Sets[number], Now()
	own, err := facts.LocalPrefixes()
	if err != nil {
		return 0, 0, err
	}
	is := map[netip.Prefix]bool{}
	for _, p := range own {
		is[p] = true
	}
	var gone []netip.Prefix
	for entry := range set.All(now) {
		if !is[entry.Prefix] {
			gone = append(gone, entry.Prefix)
		}
		delete(is, entry.Prefix)
	}
	for p := range is {
		err := set.Insert(addrs.Entry{Prefix: p}, now)
		if errors.Is(err, addrs.ErrFull) {
			err = tooManyOwn(set)
		}
		if err != nil {
			return added, 0, fmt.Errorf("own addresses %s: %w", addrs.PrefixText(p), err)
		}
		added++
	}
	sets.ShowOwn(own)
	for _, p := range gone {
		set.Delete(p, now)
	}
	return added, len(gone), nil
}

// tooManyOwn returns the error for a set that has too little space for the host's own addresses.
func tooManyOwn(set *addrs.DynamicSet) error {
	return &SetError{fmt.Sprintf("this host has more than %d addresses of its own, too many for `local`", set.Capacity()),
		"give it prefixes in place of addresses (ip route add local PREFIX dev lo), or use --target nftables, which asks the routes"}
}
