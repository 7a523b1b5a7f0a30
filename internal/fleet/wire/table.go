// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"iter"
	"net/netip"
	"time"
)

// Table has the records of all prefixes. Its zero value is empty. It is not safe for concurrent use.
type Table struct {
	records map[netip.Prefix]Record
	of      map[string]int // number of statements by origin
}

// Len is the number of prefixes with a record.
func (t *Table) Len() int { return len(t.records) }

// Of is the number of statements of an origin.
func (t *Table) Of(origin string) int { return t.of[origin] }

// Get is the record of a prefix, empty when there is none.
func (t *Table) Get(p netip.Prefix) Record {
	if r, ok := t.records[p]; ok {
		return r
	}
	return Record{Prefix: p}
}

// Merge merges a record into the table. It reports whether the table has changed.
func (t *Table) Merge(r Record) (Record, bool) {
	before := t.Get(r.Prefix)
	after := Merge(before, r)
	if after.Equal(before) {
		return before, false
	}
	t.set(before, after)
	return after, true
}

func (t *Table) set(before, after Record) {
	if t.records == nil {
		t.records, t.of = map[netip.Prefix]Record{}, map[string]int{}
	}
	t.count(before, -1)
	t.count(after, 1)
	if len(after.Statements) == 0 {
		delete(t.records, after.Prefix)
	} else {
		t.records[after.Prefix] = after
	}
}

func (t *Table) count(r Record, by int) {
	for i := range r.Statements {
		origin := r.Statements[i].Origin
		if t.of[origin] += by; t.of[origin] == 0 {
			delete(t.of, origin)
		}
	}
}

// Sweep removes void statements.
func (t *Table) Sweep(now time.Time) {
	for _, r := range t.records {
		if after := r.Without(now); len(after.Statements) < len(r.Statements) {
			t.set(r, after)
		}
	}
}

// All yields the records in no particular order.
func (t *Table) All() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for _, r := range t.records {
			if !yield(r) {
				return
			}
		}
	}
}
