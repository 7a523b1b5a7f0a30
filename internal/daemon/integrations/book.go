// SPDX-License-Identifier: Apache-2.0

package integrations

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// entry is a decision in force.
type entry struct {
	prefix netip.Prefix
	end    time.Time
	why    string
}

// key identifies a decision: by its number, or by its prefix if the decision of an entry in the set is not known yet.
type key struct {
	id   int64
	held netip.Prefix
}

// book contains all decisions in force. A prefix stays banned until its last decision ends.
type book struct {
	entries map[key]entry
	of      map[netip.Prefix]map[key]bool
	ignored map[string]*ignored // decisions that cannot be applied, by the reason; there are few reasons, so a server cannot fill the memory
}

// ignored is the number of decisions that were ignored for a reason, and the text of one of them.
type ignored struct {
	n       int
	example string
}

func newBook() *book {
	return &book{map[key]entry{}, map[netip.Prefix]map[key]bool{}, map[string]*ignored{}}
}

func (b *book) put(k key, e entry) {
	b.remove(k)
	b.entries[k] = e
	if b.of[e.prefix] == nil {
		b.of[e.prefix] = map[key]bool{}
	}
	b.of[e.prefix][k] = true
}

func (b *book) remove(k key) {
	e, ok := b.entries[k]
	if !ok {
		return
	}
	delete(b.entries, k)
	if delete(b.of[e.prefix], k); len(b.of[e.prefix]) == 0 {
		delete(b.of, e.prefix)
	}
}

// hold adds an entry that is in the set, but whose decision is not known yet.
func (b *book) hold(e entry) {
	if b.of[e.prefix] == nil {
		b.put(key{held: e.prefix}, e)
	}
}

// take applies an answer of the server. A decision that the answer lists as both new and deleted is deleted. A decision that is missing from the
// answer stays, because an answer that an error of the server's database has truncated looks complete.
func (b *book) take(a answer, now time.Time) {
	gone := map[int64]bool{}
	for _, d := range a.deleted {
		if d.ID != 0 {
			gone[d.ID] = true
			b.remove(key{id: d.ID})
		}
		if p, err := prefixOf(d); err == nil {
			b.remove(key{held: p})
		}
	}
	for _, d := range a.fresh {
		if gone[d.ID] {
			continue
		}
		e, why, example := readDecision(d, now)
		if why == "" && len(b.entries) >= mostDecisions {
			why = fmt.Sprintf("beyond the first %d", mostDecisions)
		}
		if why != "" {
			if b.ignored[why] == nil {
				b.ignored[why] = &ignored{example: example}
			}
			b.ignored[why].n++
			continue
		}
		b.remove(key{held: e.prefix}) // the decision replaces the held entry, because it has more details
		b.put(key{id: d.ID}, e)
	}
	b.expire(now)
}

// expire removes decisions that have ended.
func (b *book) expire(now time.Time) {
	for k, e := range b.entries {
		if !e.end.After(now) {
			b.remove(k)
		}
	}
}

// wanted returns for each prefix the decision that ends last.
func (b *book) wanted() map[netip.Prefix]entry {
	all := make(map[netip.Prefix]entry, len(b.of))
	for _, e := range b.entries {
		if was, ok := all[e.prefix]; !ok || e.end.After(was.end) || e.end.Equal(was.end) && e.why < was.why {
			all[e.prefix] = e
		}
	}
	return all
}

// readDecision converts a decision into an entry. If the conversion fails, why is one of a few reasons, and example is the decision's value.
func readDecision(d decision, now time.Time) (e entry, why, example string) {
	left, err := time.ParseDuration(d.Duration)
	switch {
	case d.Simulated:
		return e, "that are simulated", ""
	case d.Type != "ban":
		return e, "of another type than ban", d.Type
	case d.ID == 0:
		return e, "without a number", ""
	case err != nil:
		return e, "with a duration that is none", d.Duration
	}
	p, err := prefixOf(d)
	switch {
	case errors.Is(err, errScope):
		return e, err.Error(), d.Scope
	case err != nil:
		return e, err.Error(), d.Value
	}
	return entry{p, now.Add(left), d.Scenario}, "", ""
}

// Reasons why a set cannot ban the target of a decision.
var (
	errAddress = errors.New("with an invalid address")
	errRange   = errors.New("with a range that is none")
	errScope   = errors.New("of another scope than ip and range")
)

// prefixOf returns the prefix that a decision bans.
func prefixOf(d decision) (netip.Prefix, error) {
	switch strings.ToLower(d.Scope) {
	case "ip":
		a, err := netip.ParseAddr(d.Value)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, errAddress
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	case "range":
		p, err := netip.ParsePrefix(d.Value)
		if err != nil || p.Addr().Is4In6() {
			return netip.Prefix{}, errRange
		}
		return p.Masked(), nil
	}
	return netip.Prefix{}, errScope
}
