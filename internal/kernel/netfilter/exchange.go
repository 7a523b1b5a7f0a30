package netfilter

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Exchange replaces the elements of sets of a table in one transaction: each packet meets either the old content of all sets or the new.
// The elements of a set do not overlap, and none has a timeout.
func (n *Nft) Exchange(ctx context.Context, table string, content map[string][]Element) error {
	var lines []string
	for _, set := range slices.Sorted(maps.Keys(content)) {
		d, err := n.declared(ctx, table, set)
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

// Exchange gives sets of a generation other entries. New sets are made and filled beside them, and take their places one after
// the other (ipset swap), each at once. create is the line that makes a set with space for so many entries. A process that dies
// leaves each set as it was or as it is to be; the next Exchange removes what was made beside them.
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

// passingSet ends the name, before a number, of a set that is about to replace another.
const passingSet = "next"

// dropPassing removes what an Exchange has made beside the sets.
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
