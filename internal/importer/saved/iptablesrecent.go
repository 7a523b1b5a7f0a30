// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"fmt"
	"net/netip"
)

// recent parses the options of one -m recent.
func (r *iptablesRuleReader) recent(of []Token) *RecentOption {
	o := &RecentOption{Name: "DEFAULT", Hits: 1, Exact: true}
	for _, t := range of {
		switch t.Name {
		case "--name":
			o.Name = t.Args[0]
		case "--set":
			o.Set, o.Not = true, t.Not
		case "--rcheck", "--update":
			o.Ask, o.Not = true, t.Not
		case "--seconds", "--hitcount":
			n, ok := Number(t.Args[0], 1<<31)
			o.Exact = o.Exact && ok
			if t.Name == "--seconds" {
				o.Span = n
			} else {
				o.Hits = n
			}
		case "--mask":
			o.Mask = t.Args[0]
		case "--rdest":
			o.Dest = true
		case "--rsource", "--reap", "--rttl":
		default: // --remove
			o.Exact = false
		}
	}
	switch {
	case o.Set && !o.Ask && !o.Not && o.Exact: // such a test always holds
		r.rule.Side = append(r.rule.Side, Remembers)
	case o.Set || !o.Exact || !o.Ask:
		r.unknown("-m recent")
	}
	return o
}

// recents handles rules that test how often an address has come. For each, it finds the rule of the same chain that records the addresses of all its
// packets. The two rules together are a limit.
func (p *saveFile) recents() {
	for _, c := range p.table.Order {
		for i := range c.Rules {
			r := &c.Rules[i]
			if r.Recent == nil || !r.Recent.Ask {
				continue
			}
			l := p.recentLimit(c, i)
			for j := range r.Alts {
				if l == nil {
					r.Alts[j] = r.Alts[j].WithUnknown("-m recent")
				} else {
					r.Alts[j] = r.Alts[j].And(Cond{Limit: l})
				}
			}
		}
	}
}

// recentLimit returns the limit that rule i of a chain and a recording rule form together, or nil.
func (p *saveFile) recentLimit(c *Chain, i int) *Limit {
	r := &c.Rules[i]
	o := r.Recent
	if !o.Exact || o.Set || o.Span == 0 {
		return nil
	}
	for j := range c.Rules {
		s := &c.Rules[j]
		if j == i || s.Recent == nil || !s.Recent.Set || s.Recent.Name != o.Name || s.Recent.Dest != o.Dest || !asksLess(s, r) {
			continue
		}
		n := o.Hits
		if j < i { // the current packet is already recorded
			n--
		}
		if n == 0 || s.Act.Kind != ActNone && j < i {
			continue
		}
		return p.rateOf(r, n)
	}
	return nil
}

// asksLess reports whether r is certain to hold for all packets for which other holds.
func asksLess(r *Rule, other *Rule) bool {
	for _, a := range other.Alts {
		covered := false
		for _, b := range r.Alts {
			covered = covered || b.Unknown == nil && b.Limit == nil && b.Marks == nil && b.Devices == nil && b.Covers(&a)
		}
		if !covered {
			return false
		}
	}
	return true
}

// rateOf returns the limit of n packets for each address, in the time span that a rule tests.
func (p *saveFile) rateOf(r *Rule, n uint32) *Limit {
	o := r.Recent
	l := &Limit{At: r.At, What: "-m recent", Above: !o.Not, Burst: uint64(n)}
	for _, u := range []struct {
		unit    string
		seconds uint64
	}{{"s", 1}, {"min", 60}, {"h", 3600}, {"day", 86400}} {
		l.Rate, l.Unit = uint64(n)*u.seconds/uint64(o.Span), u.unit
		if l.Rate > 0 && uint64(n)*u.seconds%uint64(o.Span) == 0 {
			break
		}
	}
	if l.Rate == 0 {
		return nil
	}
	length, ok := recentMask(o.Mask, p.family)
	if !ok {
		return nil
	}
	if o.Dest {
		l.Per = l.Per.To(p.family, length)
	} else {
		l.Per = l.Per.From(p.family, length)
	}
	l.Less = fmt.Sprintf("an address that came %d times in %d s has to be silent that long; the policy goes on passing %d/%s of it",
		n, o.Span, l.Rate, l.Unit)
	return l
}

// recentMask returns the prefix length of --mask.
func recentMask(mask string, f Family) (length int, ok bool) {
	most := 32
	if f == IPv6 {
		most = 128
	}
	if mask == "" {
		return most, true
	}
	m, err := netip.ParseAddr(mask)
	if err != nil || m.BitLen() != most {
		return 0, false
	}
	n, ok := MaskLength(m)
	if most == 32 && ok {
		return int(n), n > 0
	}
	return int(n), ok && n > 0
}
