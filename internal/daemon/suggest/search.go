// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// Limits of the search.
const (
	leastShare = 0.02 // least share of the attack's packets that a rule must match
	leastCount = 50   // least number of the attack's packets that a rule must match, because fewer show no signature
	mostRules  = 8
	mostPorts  = 4    // number of ports of each kind that are searched separately
	perKind    = 6    // number of rules for the same port
	mostFlows  = 8    // connections and UDP flows: a rule that matches only this many flows may match a user's downloads,
	leastFlow  = 0.2  // so it must match this share of the attack
	smallGood  = 1000 // number of legitimate packets; with fewer, a rule must have several keys
	beamWidth  = 8
	beamDepth  = 4 // number of keys that the beam search adds
)

// search contains the samples, and the set of attack packets that no rule matches yet.
type search struct {
	attack, good []Sample
	total        int     // packets of the attack, including those that the policy drops already
	collateral   float64 // the largest share of the legitimate packets that a rule may match
	left         bitset  // packets of the attack that no rule matches yet
	rules        []conjunction
}

// conjunction contains the keys of a rule, and the samples that pass all keys.
type conjunction struct {
	tests        []test
	attack, good bitset
}

// run adds rules until no rule is found for the remaining packets.
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
		ports := s.ports(c)
		if k.proto == packet.ProtoTCP && len(ports) > 1 { // reflectors of TCP differ only in their port, so one rule covers all of them
			s.cover(s.with(c, anyOf(ports)), c.good)
		}
		for _, port := range ports {
			s.cover(s.with(c, port), c.good)
		}
		s.cover(c, c.good)
	}
	s.rules = s.needed(s.rules)
	slices.SortStableFunc(s.rules, func(a, b conjunction) int { return cmp.Compare(b.attack.count(), a.attack.count()) })
	s.rules = s.rules[:min(len(s.rules), mostRules)]
}

// needed removes a rule if other rules cover all of its packets.
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

// all returns the empty conjunction, which all samples pass.
func (s *search) all() conjunction {
	return conjunction{nil, fullBitset(len(s.attack)), fullBitset(len(s.good))}
}

// plain removes `fragment: none` from a conjunction if the key has no effect. It returns the conjunction with all samples that pass.
func (s *search) plain(c conjunction) conjunction {
	out := s.whole(c)
	at := slices.IndexFunc(c.tests, func(t test) bool { return t.text == "fragment: none" })
	if at >= 0 {
		less := s.whole(conjunction{tests: slices.Delete(slices.Clone(c.tests), at, at+1)})
		if slices.Equal(less.attack, out.attack) && slices.Equal(less.good, out.good) {
			return less
		}
	}
	return out
}

// whole returns a conjunction with all samples that pass its keys.
func (s *search) whole(c conjunction) conjunction {
	out := s.all()
	for _, t := range c.tests {
		out = s.with(out, t)
	}
	return out
}

// with returns a conjunction with one more key.
func (s *search) with(c conjunction, t test) conjunction {
	attack, good := s.matching(c, t)
	return conjunction{append(slices.Clone(c.tests), t), attack, good}
}

// matching returns the samples of a conjunction that also pass a key.
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

// covered returns the share of the attack that only c covers. It does not count packets that other rules or the policy cover.
func (s *search) covered(c conjunction) float64 {
	return ratio(c.attack.common(s.left), s.total)
}

// harm returns the share of the legitimate packets that c matches.
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

// ports returns tests for source or destination ports that many uncovered packets of a kind have, and few legitimate packets of that kind have.
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

// anyOf returns a test for any of the ports.
func anyOf(ports []test) test {
	var list []policy.Port
	for _, p := range ports {
		var one policy.Match
		p.put(&one)
		list = slices.Concat(list, one.SPort, one.Port)
	}
	put := func(m *policy.Match) {
		if ports[0].key == "sport" {
			m.SPort = list
		} else {
			m.Port = list
		}
	}
	return newTest(ports[0].key, put, func(s *Sample) bool { return slices.ContainsFunc(ports, func(p test) bool { return p.has(s) }) })
}

// cover finds rules for the uncovered packets within a conjunction. kind is the set of legitimate packets of the same kind.
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

// fewFlows reports whether all attack packets that c matches belong to a few TCP connections or UDP flows.
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

// narrow reports whether c has enough keys for a search without a baseline or with a small one. It needs bytes of the payload, a name, or two other
// keys, not counting the destination and the protocol.
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

// beam adds keys to a conjunction, at most beamDepth. In each round it extends the best conjunctions of the round before. It returns the best
// conjunction of all rounds. The harm of a rule must not exceed its limit. Below the limit, more coverage is better.
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
				if slices.ContainsFunc(c.tests, func(other test) bool { return other.text == t.text }) {
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
		for _, c := range next { // the same keys in another order and equivalent keys give the same samples
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

// price is the weight of harm: matching a share of the legitimate packets is this many times worse than losing the same share of coverage.
const price = 20

// score returns how good a conjunction is.
func (s *search) score(c conjunction) float64 {
	return s.covered(c) - price*max(0, s.harm(c)-s.collateral/2)
}
