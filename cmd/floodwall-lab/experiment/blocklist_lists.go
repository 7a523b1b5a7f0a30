package experiment

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// The article's numbers of entries, from 0 to publishedMost in steps of publishedStep.
const (
	publishedMost = 50_000
	publishedStep = 1_000
)

// publishedColumns are the numbers of entries in the article's table.
var publishedColumns = []int{0, 1_000, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 35_000, 40_000, 45_000, 50_000}

// makeLists returns functions that make the lists, from the empty list to the longest. Each function is called when its list is measured.
func makeLists(s *rig.Session) (all []func() *rig.List, err error) {
	if s.List != "" {
		l, err := rig.ReadList(s.List)
		if err != nil {
			return nil, err
		}
		if err := l.Spare(); err != nil {
			return nil, fmt.Errorf("list %s: %w", s.List, err)
		}
		none := &rig.List{Name: "n=0", Label: "no entries", Hosts: l.Hosts, V6: l.V6}
		return append(all, func() *rig.List { return none }, func() *rig.List { return l }), nil
	}
	for _, n := range listSizes(s) {
		all = append(all, func() *rig.List { return rig.RandomHosts(n) })
	}
	return all, nil
}

// listSizes returns the sizes of the random lists.
func listSizes(s *rig.Session) (sizes []int) {
	switch {
	case s.Sizes != nil:
		sizes = append([]int{0}, s.Sizes...)
		slices.Sort(sizes)
		return slices.Compact(sizes)
	case s.Quick:
		return []int{0, 1_000, fewRules, 10_000, publishedMost / 2, publishedMost, 10_000_000}
	}
	for n := 0; n <= publishedMost; n += publishedStep {
		sizes = append(sizes, n)
	}
	return append(sizes, 100_000, 1_000_000, 10_000_000)
}
