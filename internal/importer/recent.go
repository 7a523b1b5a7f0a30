package importer

import (
	"fmt"
	"net/netip"
)

// recentOption is what a rule asks of the lists of xt_recent, or does to them.
type recentOption struct {
	name  string
	dest  bool
	mask  string
	set   bool // remembers the address of each packet that gets here, and matches it
	ask   bool // matches when the address came often
	not   bool
	span  uint32 // in the last so many seconds; 0 is ever
	hits  uint32 // so often, counted as iptables does
	exact bool   // all options are understood
}

// recent reads the options of one -m recent.
func (r *ruleReader) recent(of []token) *recentOption {
	o := &recentOption{name: "DEFAULT", hits: 1, exact: true}
	for _, t := range of {
		switch t.name {
		case "--name":
			o.name = t.args[0]
		case "--set":
			o.set, o.not = true, t.not
		case "--rcheck", "--update":
			o.ask, o.not = true, t.not
		case "--seconds", "--hitcount":
			n, ok := number(t.args[0], 1<<31)
			o.exact = o.exact && ok
			if t.name == "--seconds" {
				o.span = n
			} else {
				o.hits = n
			}
		case "--mask":
			o.mask = t.args[0]
		case "--rdest":
			o.dest = true
		case "--rsource", "--reap", "--rttl":
		default: // --remove
			o.exact = false
		}
	}
	switch {
	case o.set && !o.ask && !o.not && o.exact: // always holds
		r.rule.side = append(r.rule.side, remembers)
	case o.set || !o.exact || !o.ask:
		r.unknown("-m recent")
	}
	return o
}

const remembers = "remembers addresses; a rule of the policy that asks how often one came counts for itself"

// recents finds, for each rule that asks how often an address came, the rule of the same chain that remembers those of
// all its packets. Together they are a limit.
func (p *iptablesFile) recents() {
	for _, c := range p.table.order {
		for i := range c.rules {
			r := &c.rules[i]
			if r.recent == nil || !r.recent.ask {
				continue
			}
			l := p.recentLimit(c, i)
			for j := range r.alts {
				if l == nil {
					r.alts[j] = r.alts[j].withUnknown("-m recent")
				} else {
					r.alts[j] = r.alts[j].and(cond{limit: l})
				}
			}
		}
	}
}

// recentLimit is the limit that rule i of a chain and one that remembers make together, or nil.
func (p *iptablesFile) recentLimit(c *chain, i int) *limit {
	r := &c.rules[i]
	o := r.recent
	if !o.exact || o.set || o.span == 0 {
		return nil
	}
	for j := range c.rules {
		s := &c.rules[j]
		if j == i || s.recent == nil || !s.recent.set || s.recent.name != o.name || s.recent.dest != o.dest || !s.asksLess(r) {
			continue
		}
		n := o.hits
		if j < i { // the packet at hand is among those remembered
			n--
		}
		if n == 0 || s.act.kind != actNone && j < i {
			continue
		}
		return p.rateOf(r, n)
	}
	return nil
}

// asksLess reports whether r surely holds for all packets that other holds for.
func (r *rule) asksLess(other *rule) bool {
	for _, a := range other.alts {
		covered := false
		for _, b := range r.alts {
			covered = covered || b.unknown == nil && b.limit == nil && b.marks == nil && b.devices == nil && b.covers(&a)
		}
		if !covered {
			return false
		}
	}
	return true
}

// rateOf is the limit of n packets in the time of a rule, for each address.
func (p *iptablesFile) rateOf(r *rule, n uint32) *limit {
	o := r.recent
	l := &limit{at: r.at, what: "-m recent", above: !o.not, burst: uint64(n)}
	for _, u := range []struct {
		unit    string
		seconds uint64
	}{{"s", 1}, {"min", 60}, {"h", 3600}, {"day", 86400}} {
		l.rate, l.unit = uint64(n)*u.seconds/uint64(o.span), u.unit
		if l.rate > 0 && uint64(n)*u.seconds%uint64(o.span) == 0 {
			break
		}
	}
	if l.rate == 0 {
		return nil
	}
	length, ok := recentMask(o.mask, p.family)
	if !ok {
		return nil
	}
	if o.dest {
		l.per = l.per.to(p.family, length)
	} else {
		l.per = l.per.from(p.family, length)
	}
	l.less = fmt.Sprintf("an address that came %d times in %d s has to be silent that long; the policy goes on passing %d/%s of it",
		n, o.span, l.rate, l.unit)
	return l
}

// recentMask is the length of --mask.
func recentMask(mask string, f family) (length int, ok bool) {
	most := 32
	if f == ipv6 {
		most = 128
	}
	if mask == "" {
		return most, true
	}
	m, err := netip.ParseAddr(mask)
	if err != nil || m.BitLen() != most {
		return 0, false
	}
	n, ok := maskLength(m)
	if most == 32 && ok {
		return int(n), n > 0
	}
	return int(n), ok && n > 0
}
