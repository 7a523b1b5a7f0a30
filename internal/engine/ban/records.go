package ban

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/engine/manifest"
)

// BlockedRecords are the entries that a Block has made or changed. A ban that was refused, or that left the entry of its prefix as it
// was, has none: a record of it would hide that of the entry.
func BlockedRecords(e manifest.Set, bans []Ban, o Outcome) []Record {
	not := map[int]bool{}
	ranges := map[int]bool{}
	for _, r := range o.Refused {
		not[r.Index] = true
		ranges[bans[r.Index].Range] = bans[r.Index].Range != 0
	}
	for _, i := range o.Kept {
		not[i] = true
	}
	now := time.Now()
	var list []Record
	for i, b := range bans {
		if not[i] || ranges[b.Range] {
			continue
		}
		r := Record{Set: e.Name, Prefix: b.Prefix.Masked(), Start: now, Why: b.reason()}
		length := b.length()
		if length == 0 {
			length = e.Timeout
		}
		if length != Forever && length > 0 {
			r.End = now.Add(length)
		}
		list = append(list, r)
	}
	return list
}

// UnblockedRecords are the entries that an Unblock has removed.
func UnblockedRecords(e manifest.Set, prefixes []netip.Prefix, o Outcome) []Record {
	not := map[int]bool{}
	for _, r := range o.Refused {
		not[r.Index] = true
	}
	var list []Record
	for i, p := range prefixes {
		if !not[i] {
			list = append(list, Record{Set: e.Name, Prefix: p.Masked(), Start: time.Now(), Gone: true})
		}
	}
	return list
}

// RecordsOf are the records of entries, as they are now.
func RecordsOf(lists [][]Blocked) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		now := time.Now()
		for _, list := range lists {
			for _, b := range list {
				r := Record{Set: b.Set, Prefix: b.Prefix, Start: now, Why: b.Text()}
				if b.Expires != nil {
					r.End = now.Add(time.Duration(*b.Expires * float64(time.Second)))
				}
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Recorded is the entry of a record at a time.
func Recorded(r Record, now time.Time) Blocked {
	b := BlockedAs(r.Prefix, r.Set, r.Why)
	if !r.End.IsZero() {
		left := r.Left(now).Seconds()
		b.Expires = &left
	}
	return b
}

// SortByEnd sorts entries, those first that end last.
func SortByEnd(list []Blocked) {
	slices.SortFunc(list, func(a, b Blocked) int { return cmp.Compare(b.end(), a.end()) })
}

// Disjoint leaves out prefixes that are part of another one, or around one that comes before.
func Disjoint(list []Blocked) (out []Blocked) {
	inner := map[netip.Prefix]bool{} // every prefix around one that is in
	is := map[netip.Prefix]bool{}
	for _, b := range list {
		if b.Prefix.IsSingleIP() { // in a set of its own
			out = append(out, b)
			continue
		}
		covered := inner[b.Prefix]
		for bits := b.Prefix.Bits(); bits >= 0 && !covered; bits-- {
			p, _ := b.Prefix.Addr().Prefix(bits)
			covered = is[p]
		}
		if covered {
			continue
		}
		is[b.Prefix] = true
		for bits := b.Prefix.Bits(); bits >= 0; bits-- {
			p, _ := b.Prefix.Addr().Prefix(bits)
			inner[p] = true
		}
		out = append(out, b)
	}
	return out
}
