// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/engine/manifest"
)

// endsSoon is the remaining time below which a lost entry is not restored: the file of bans stores times in whole seconds.
const endsSoon = 2 * time.Second

// Lost returns the entries of set e that are in the file of bans but not in the kernel. Such an entry was evicted because the set was full, or
// another program removed it. An entry that was unblocked is not in the file. Lost returns only as many entries as fit into the set without an
// eviction: first entries of persons, then the entries that end last. `left` is the number of lost entries that do not fit.
func Lost(e manifest.Set, held []Ban, saved []Record) (list []Ban, left int) {
	now := time.Now()
	missing := make(map[netip.Prefix]Record, len(saved))
	for _, r := range saved {
		if r.Set == e.Name && r.Left(now) > endsSoon {
			missing[r.Prefix] = r
		}
	}
	free := map[bool]int{false: e.Max - len(held), true: e.Max - e.Max/4} // true: for entries of programs
	for _, b := range held {
		delete(missing, b.Prefix)
		if b.Origin != Manual {
			free[true]--
		}
	}
	for _, r := range missing {
		list = append(list, r.at(now))
	}
	slices.SortFunc(list, func(a, b Ban) int {
		return cmp.Or(countYields(a.Origin != Manual)-countYields(b.Origin != Manual), b.Until.Compare(a.Until))
	})
	list = slices.DeleteFunc(list, func(b Ban) bool {
		program := b.Origin != Manual
		if free[false] <= 0 || program && free[true] <= 0 {
			left++
			return true
		}
		free[false]--
		if program {
			free[true]--
		}
		return false
	})
	return list, left
}

// WithLost returns the entries of each dynamic set of a policy, together with the entries that the set has lost. It returns at most twice the max of
// each set, so that a flood of bans that are evicted later cannot fill the disk.
func WithLost(m *manifest.Manifest, held map[string][]Ban, saved []Record) (lists [][]Ban) {
	for _, e := range m.Sets {
		if e.Dynamic < 0 || e.Local {
			continue
		}
		most := e
		most.Max = 2 * e.Max
		lost, _ := Lost(most, held[e.Name], saved)
		for _, list := range [][]Ban{held[e.Name], lost} {
			for i := range list {
				list[i].Set = e.Name
			}
			lists = append(lists, list)
		}
	}
	return lists
}

// AddLost adds to held the entries that the dynamic sets of the policy have lost.
func AddLost(m *manifest.Manifest, held map[string][]Ban, saved []Record) {
	for _, e := range m.Sets {
		lost, _ := Lost(e, held[e.Name], saved)
		held[e.Name] = append(held[e.Name], lost...)
	}
}

// IsIn returns a function that reports whether the policy has a dynamic set with a given name.
func IsIn(m *manifest.Manifest) func(set string) bool {
	return func(set string) bool {
		e, ok := m.Set(set)
		return ok && e.Dynamic >= 0 && !e.Local
	}
}
