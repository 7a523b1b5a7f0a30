// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
)

// Replace loads the table of a script. It replaces an existing table of the same name. The table is of family inet and has no trial.
func (n *Nft) Replace(ctx context.Context, table, script string) error {
	if err := n.script(ctx, "add table inet "+table, "delete table inet "+table, script); err != nil {
		return fmt.Errorf("loading table %s: %w", table, err)
	}
	return nil
}

// InputDevices returns the devices that the chain input of a table names, sorted and without duplicates. It returns nil when there is no such chain.
func InputDevices(table string) (names []string, err error) {
	t, err := nftable.ReadWhole(unix.NFPROTO_INET, table)
	if err != nil {
		return nil, fmt.Errorf("devices of table %s: %w", table, err)
	}
	add := func(name []byte) {
		if len(name) == unix.IFNAMSIZ { // a shorter value is only the start of a name
			names = append(names, unix.ByteSliceToString(name))
		}
	}
	for _, c := range t.Chains {
		for i := 0; c.Name == "input" && i < len(c.Rules); i++ {
			at := -1 // the register with the name of the input device
			for _, e := range c.Rules[i].Expressions {
				switch e := e.(type) {
				case nftable.Meta:
					if at = -1; e.Key == unix.NFT_META_IIFNAME {
						at = e.To
					}
				case nftable.Cmp:
					if e.From == at {
						add(e.Value)
					}
				case nftable.Lookup:
					if s := t.Sets[e.Set]; s != nil && e.From == at {
						for _, element := range s.Elements {
							add(element.Key)
						}
					}
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
