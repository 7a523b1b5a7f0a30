// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Exchange replaces the elements of sets of a table in one transaction. Each packet sees either the old or the new content of all sets. The elements
// of a set must not overlap, and must not have a timeout.
func (n *Nft) Exchange(ctx context.Context, table string, content map[string][]Element) error {
	var lines []string
	for _, set := range slices.Sorted(maps.Keys(content)) {
		d, err := declared(table, set)
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("flush set inet %s %s", table, set))
		if len(content[set]) > 0 {
			lines = append(lines, d.with(content[set]))
		}
	}
	if err := n.script(ctx, lines...); err != nil {
		return fmt.Errorf("exchanging sets of table %s: %w", table, err)
	}
	return nil
}

// Exchange replaces the entries of sets of a generation. It creates and fills new sets beside the old ones, and then swaps them one by one (ipset
// swap), each swap atomically. `create` returns the line that creates a set with space for the given number of entries. If the process dies, each set
// has either its old or its new content, and the next Exchange removes the additional sets.
func (x *Iptables) Exchange(ctx context.Context, generation string, content map[string][]Element,
	create func(name string, six bool, entries int) string) error {
	explain := func(err error) error { return fmt.Errorf("exchanging sets of %s: %w", generation, err) }
	if err := x.dropPassing(ctx, generation); err != nil {
		return explain(err)
	}
	passing := map[string]string{}
	var lines []string
	for i, set := range slices.Sorted(maps.Keys(content)) {
		k, err := x.kind(ctx, set)
		if err != nil {
			return explain(err)
		}
		name := fmt.Sprintf("%s%s%d", setsPrefix(generation), passingSet, i)
		passing[set] = name
		lines = append(lines, create(name, k.six, len(content[set])))
		for _, e := range content[set] {
			for _, entry := range entries(e.Prefix) {
				lines = append(lines, "add "+name+" "+entry)
			}
		}
	}
	err := x.restoreSets(ctx, lines...)
	for _, set := range slices.Sorted(maps.Keys(passing)) {
		if err == nil {
			err = x.swap(ctx, passing[set], set)
		}
	}
	if err != nil {
		return explain(undo(ctx, err, func(ctx context.Context) error { return x.dropPassing(ctx, generation) }))
	}
	return x.dropPassing(ctx, generation)
}

// passingSet is the part before the number in the name of a set that will replace another one.
const passingSet = "next"

// dropPassing removes the additional sets that an Exchange has created.
func (x *Iptables) dropPassing(ctx context.Context, generation string) error {
	held, err := x.setNames(ctx)
	if err != nil {
		return err
	}
	passing := numbered(held, setsPrefix(generation)+passingSet, nil)
	if len(passing) == 0 {
		return nil
	}
	return x.destroy(ctx, passing)
}
