package ban

import (
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/engine/manifest"
)

// endsSoon is the time left below which a lost entry is not entered again: the file of bans has whole seconds.
const endsSoon = 2 * time.Second

// Lost returns the entries that set e has by the file of bans, but not in the kernel: it was full and they gave way, or another program
// removed them. An entry that the file does not have was lifted. The list has as many as fit the set without entries that give way: first
// those of people, then those that end last. left is the number that does not fit.
func Lost(e manifest.Set, held []Blocked, saved []Record) (list []Blocked, left int) {
	now := time.Now()
	missing := make(map[netip.Prefix]Record, len(saved))
	for _, r := range saved {
		if r.Set == e.Name && (r.End.IsZero() || r.Left(now) > endsSoon) {
			missing[r.Prefix] = r
		}
	}
	free := map[bool]int{false: e.Max - len(held), true: e.Max - e.Max/4} // true: of programs
	for _, b := range held {
		delete(missing, b.Prefix)
		if b.Origin != Manual {
			free[true]--
		}
	}
	for _, r := range missing {
		list = append(list, Recorded(r, now))
	}
	SortByEnd(list)
	slices.SortStableFunc(list, func(a, b Blocked) int { return countYields(a.Origin != Manual) - countYields(b.Origin != Manual) })
	list = slices.DeleteFunc(list, func(b Blocked) bool {
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

// WithLost are the entries that the dynamic sets of a policy hold, and those that they have lost: of each set as many as twice its max
// at most, so that a flood of bans that give way fills no disk.
func WithLost(m *manifest.Manifest, held map[string][]Blocked, saved []Record) (lists [][]Blocked) {
	for _, e := range m.Sets {
		if e.Dynamic < 0 || e.Local {
			continue
		}
		most := e
		most.Max = 2 * e.Max
		lost, _ := Lost(most, held[e.Name], saved)
		for _, list := range [][]Blocked{held[e.Name], lost} {
			for i := range list {
				list[i].Set = e.Name
			}
			lists = append(lists, list)
		}
	}
	return lists
}

// AddLost adds to what dynamic sets of a policy hold what they have lost.
func AddLost(m *manifest.Manifest, held map[string][]Blocked, saved []Record) {
	for _, e := range m.Sets {
		lost, _ := Lost(e, held[e.Name], saved)
		held[e.Name] = append(held[e.Name], lost...)
	}
}

// IsIn reports whether a name is that of a dynamic set of the policy.
func IsIn(m *manifest.Manifest) func(set string) bool {
	return func(set string) bool {
		e, ok := m.Set(set)
		return ok && e.Dynamic >= 0 && !e.Local
	}
}
