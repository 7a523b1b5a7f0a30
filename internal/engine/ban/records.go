// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"iter"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/engine/manifest"
)

// BlockedRecords returns records of the entries that a Block has added or changed. It returns no record for a ban that left the existing entry
// unchanged: such a record would override the record of the existing entry.
func BlockedRecords(e manifest.Set, bans []Ban, o Outcome) (list []Record) {
	now := time.Now()
	for _, i := range o.Changed {
		list = append(list, Record{Ban: bans[i].entry(e.Name, e.Timeout), Start: now})
	}
	return list
}

// UnblockedRecords returns records of the entries that an Unblock has removed.
func UnblockedRecords(e manifest.Set, prefixes []netip.Prefix, o Outcome) (list []Record) {
	now := time.Now()
	for _, i := range o.Changed {
		list = append(list, Record{Ban: Ban{Set: e.Name, Prefix: prefixes[i].Masked()}, Start: now, Gone: true})
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
