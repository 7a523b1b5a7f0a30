package suggest

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// The bounds of the search.
const (
	leastShare = 0.02 // of the attack, that a rule must cover
	leastCount = 50   // packets of the attack that it must cover: fewer show no signature
	mostRules  = 8
	mostPorts  = 4    // ports that are looked at by themselves, of each kind
	perKind    = 6    // rules of the same port
	mostFlows  = 8    // connections and UDP flows: a rule that matches no more of them, which may be somebody's downloads,
	leastFlow  = 0.2  // must cover so much of the attack
	smallGood  = 1000 // legitimate packets: with fewer, a rule must have several keys
	beamWidth  = 8
	beamDepth  = 4 // keys that are added
)

// search is the samples, and what is left of the attack.
type search struct {
	attack, good []Sample
	total        int     // packets of the attack, those that the policy drops already included
	collateral   float64 // the most of the legitimate packets that a rule may match, as a share
	left         bitset  // of the attack: what no rule covers
	rules        []conjunction
}

// conjunction is the keys of a rule, and the samples that have all of them.
type conjunction struct {
	tests        []test
	attack, good bitset
}

// run finds rules until nothing is left that could have one.
func (s *search) run() {
	s.left = fullBitset(len(s.attack))
	for _, k := range kinds(s.attack, max(leastCount, int(leastShare*float64(s.total)))) {
		c := s.all()
		for _, t := range k.tests() {
			c = s.with(c, t)
		}
		if !s.worthwhile(c) {
			continue
		}
		for _, port := range s.ports(c) {
			s.cover(s.with(c, port), c.good)
		}
		s.cover(c, c.good)
	}
	s.rules = s.needed(s.rules)
	slices.SortStableFunc(s.rules, func(a, b conjunction) int { return cmp.Compare(b.attack.count(), a.attack.count()) })
	s.rules = s.rules[:min(len(s.rules), mostRules)]
}

// needed are the rules without those whose packets others cover, too.
func (s *search) needed(rules []conjunction) []conjunction {
	for i := 0; i < len(rules); {
		alone := rules[i].attack
		for j, other := range rules {
			if j != i {
				alone = alone.without(other.attack)
			}
		}
		if alone.count() < leastCount {
			rules = slices.Delete(rules, i, i+1)
		} else {
			i++
		}
	}
	return rules
}

// all is the conjunction of no key: it has all samples.
func (s *search) all() conjunction {
	return conjunction{nil, fullBitset(len(s.attack)), fullBitset(len(s.good))}
}

// plain is a conjunction with all samples that have its keys, and without `fragment: none` where that says nothing.
func (s *search) plain(c conjunction) conjunction {
	out := s.whole(c)
	at := slices.IndexFunc(c.tests, func(t test) bool { return t.key == "fragment" && t.value == "none" })
	if at >= 0 {
		less := s.whole(conjunction{tests: slices.Delete(slices.Clone(c.tests), at, at+1)})
		if slices.Equal(less.attack, out.attack) && slices.Equal(less.good, out.good) {
			return less
		}
	}
	return out
}

// whole is a conjunction with all samples that have its keys.
func (s *search) whole(c conjunction) conjunction {
	out := s.all()
	for _, t := range c.tests {
		out = s.with(out, t)
	}
	return out
}

// with is a conjunction with one key more.
func (s *search) with(c conjunction, t test) conjunction {
	attack, good := s.matching(c, t)
	return conjunction{append(slices.Clone(c.tests), t), attack, good}
}

// matching are the samples of a conjunction that have a key.
func (s *search) matching(c conjunction, t test) (attack, good bitset) {
	attack, good = newBitset(len(s.attack)), newBitset(len(s.good))
	c.attack.each(func(i int) {
		if t.has(&s.attack[i]) {
			attack.add(i)
		}
	})
	c.good.each(func(i int) {
		if t.has(&s.good[i]) {
			good.add(i)
		}
	})
	return attack, good
}

// covered is the share of the attack that no other rule and not the policy covers, and c does.
func (s *search) covered(c conjunction) float64 {
	return ratio(c.attack.common(s.left), s.total)
}

// harm is the share of the legitimate packets that c matches.
func (s *search) harm(c conjunction) float64 { return ratio(c.good.count(), len(s.good)) }

// worthwhile reports whether c covers enough of the attack.
func (s *search) worthwhile(c conjunction) bool {
	return c.attack.common(s.left) >= leastCount && s.covered(c) >= leastShare
}

func ratio(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// ports are keys for the ports, of one of the two sides, from or to which much of what is left of a kind goes, and few of the
// legitimate packets of that kind.
func (s *search) ports(c conjunction) (best []test) {
	most := 0
	for _, f := range []packet.Field{packet.SPort, packet.DPort} {
		left := c.attack.and(s.left)
		counts, good := values(s.attack, left, f), values(s.good, c.good, f)
		var list []test
		sum := 0
		for _, v := range frequent(counts, max(1, left.count()/10), mostPorts) {
			if v != packet.PortNone && ratio(counts[v], left.count()) > 4*ratio(good[v], c.good.count()) {
				list = append(list, exactly(f, v))
				sum += counts[v]
			}
		}
		if sum > most {
			best, most = list, sum
		}
	}
	return best
}

// cover finds rules for what is left within a conjunction. kind are the legitimate packets of the same kind.
func (s *search) cover(within conjunction, kind bitset) {
	for range perKind {
		if !s.worthwhile(within) {
			return
		}
		found := within
		if s.harm(found) > 0 {
			found = s.beam(within)
		}
		if s.harm(found) > s.collateral || !s.worthwhile(found) {
			return
		}
		found.attack = found.attack.and(s.left)
		found = s.narrow(found, kind)
		if s.fewFlows(found) && s.covered(found) < leastFlow || len(s.good) < smallGood && !found.narrow() {
			return
		}
		s.left = s.left.without(found.attack)
		s.rules = append(s.rules, s.plain(found))
	}
}

// fewFlows reports whether all packets of the attack that c matches are of a few TCP connections or UDP flows.
func (s *search) fewFlows(c conjunction) bool {
	type flow struct {
		src, dst     netip.Addr
		sport, dport uint32
	}
	flows := map[flow]bool{}
	c.attack.each(func(i int) {
		p := &s.attack[i]
		flows[flow{p.Src, p.Dst, p.Value[packet.SPort], p.Value[packet.DPort]}] = true
	})
	return len(flows) <= mostFlows && s.attack[c.attack.first()].Value[packet.SPort] != packet.PortNone
}

// narrow reports whether c has keys enough to be tried with no baseline, or a small one: bytes of the payload, a name, or two others that say more
// than to whom a packet goes, by which protocol.
func (c conjunction) narrow() bool {
	n := 0
	for _, t := range c.tests {
		switch t.key {
		case "payload.at", "dns.name", "dns.type":
			n += 2
		case "family", "to", "proto", "dscp":
		default:
			n++
		}
	}
	return n >= 2
}

// beam adds up to so many keys to a conjunction, each time to the best ones so far, and returns the best of all. What a rule may harm is
// what it must not exceed; below that, it is better the more it covers.
func (s *search) beam(from conjunction) conjunction {
	best, front := from, []conjunction{from}
	candidates := s.candidates(from.attack.and(s.left))
	sets := make([]conjunction, len(candidates))
	for i, t := range candidates {
		sets[i].attack, sets[i].good = s.matching(from, t)
	}
	for range beamDepth {
		var next []conjunction
		for _, c := range front {
			for i, t := range candidates {
				if slices.ContainsFunc(c.tests, func(other test) bool { return other.key == t.key && other.value == t.value }) {
					continue
				}
				longer := conjunction{append(slices.Clone(c.tests), t), c.attack.and(sets[i].attack), c.good.and(sets[i].good)}
				if s.score(longer) > s.score(c) && s.covered(longer) >= leastShare {
					next = append(next, longer)
				}
			}
		}
		slices.SortStableFunc(next, func(a, b conjunction) int { return cmp.Compare(s.score(b), s.score(a)) })
		front = nil
		for _, c := range next { // the same keys in another order, or keys that say the same, have the same samples
			if len(front) < beamWidth && !slices.ContainsFunc(front, func(f conjunction) bool {
				return slices.Equal(f.attack, c.attack) && slices.Equal(f.good, c.good)
			}) {
				front = append(front, c)
			}
		}
		if len(front) == 0 {
			break
		}
		if s.score(front[0]) > s.score(best) {
			best = front[0]
		}
	}
	return best
}

// price is how many times worse it is to harm a share of the legitimate packets than to cover a share of the attack less.
const price = 20

// score rates a conjunction.
func (s *search) score(c conjunction) float64 {
	return s.covered(c) - price*max(0, s.harm(c)-s.collateral/2)
}
