// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"iter"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/engine/manifest"
)

// BlockedRecords returns records of the entries that a Block has added or changed. It returns no record for a refused ban, or for a ban that left the
// existing entry unchanged: such a record would override the record of the existing entry.
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
		list = append(list, Record{Ban: b.entry(e.Name, e.Timeout), Start: now})
	}
	return list
}

// UnblockedRecords returns records of the entries that an Unblock has removed.
func UnblockedRecords(e manifest.Set, prefixes []netip.Prefix, o Outcome) []Record {
	not := map[int]bool{}
	for _, r := range o.Refused {
		not[r.Index] = true
	}
	var list []Record
	for i, p := range prefixes {
		if !not[i] {
			list = append(list, Record{Ban: Ban{Set: e.Name, Prefix: p.Masked()}, Start: time.Now(), Gone: true})
		}
	}
	return list
}

// RecordsOf returns records of entries, with the present time as Start.
func RecordsOf(lists [][]Ban) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		now := time.Now()
		for _, list := range lists {
			for _, b := range list {
				if !yield(Record{Ban: b, Start: now}) {
					return
				}
			}
		}
	}
}

// Disjoint returns the list without each prefix that overlaps an earlier prefix.
func Disjoint(list []Ban) (out []Ban) {
	inner := map[netip.Prefix]bool{} // every prefix that contains a prefix of out
	is := map[netip.Prefix]bool{}
	for _, b := range list {
		if b.Prefix.IsSingleIP() { // single addresses have a set of their own
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
