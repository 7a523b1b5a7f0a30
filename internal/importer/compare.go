// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// An import compares its policy with the files by test packets. The packets have values at the borders of the tests in the rules of both. The files'
// verdict comes from trace.go. The policy's verdict comes from ir.Eval, on the policy's text. The comparison finds errors in the conversion between
// the two forms. It does not find errors of the parsers in package saved: TestKernel finds these. If the verdicts on a packet differ, the difference
// is explained in two cases: the packet met a rule that the report names, or the policy's rule comes from such a rule. Any other difference is a bug
// in this package, and the report says so.

// The limits of a comparison: packets for each condition, conditions, and evaluated rules. A comparison within them takes about a second.
const (
	packetsOfAll = 2000 // packets of a family, divided among the conditions of the family's rules
	leastOfEach  = 4
	mostOfEach   = 100
	maxTries     = 8 // attempts to draw a packet of the family
	maxConds     = 2500
	maxAsked     = 600_000
)

// comparison compares the policy with the files.
type comparison struct {
	files
	program *ir.Program
	origin  map[string][]saved.Place // origins of the policy's rules, by the rule's name
	report  *saved.Report
	lost    map[saved.Place]bool // rules that the report names before the comparison
	devices []string
	tracked map[saved.Family]bool // families whose fragments are reassembled

	tried        int
	open, closed int // packets that only the policy passes, and packets that only the policy drops, without a reason in the report
	first        string
	told         map[string]bool
}

// summary says how many test packets have different verdicts from the policy and from the files without a reason in the report. It returns "" if
// there are none.
func (c *comparison) summary() string {
	if c.open+c.closed == 0 {
		return ""
	}
	return fmt.Sprintf("of %d packets that import tried, it passes %d that the files drop and drops %d that they pass, and no rule without an equal is the reason; one is %s",
		c.tried, c.open, c.closed, c.first)
}

// compare makes the comparison, and reports the differences.
func (w *writer) compare(rs *saved.Ruleset, text string, devices []string, router bool, families saved.Family, list []flat) string {
	program, err := w.program(text)
	if err != nil || len(rs.Tables) == 0 {
		return "" // the reason for the refusal is already reported
	}
	c := &comparison{program: program, origin: w.origin, report: w.report, lost: maps.Clone(w.report.IsLost), devices: devices,
		told: map[string]bool{}, tracked: map[saved.Family]bool{}}
	c.files = filesOf(rs, router)
	c.member = c.has
	r := rand.New(rand.NewPCG(1, 2))
	for _, f := range []saved.Family{saved.IPv4, saved.IPv6} {
		if families&f == 0 {
			continue
		}
		c.steps = maxAsked
		c.tracked[f] = tracks(rs, f)
		conds := condsOf(rs, f, router)
		for _, of := range list {
			if own, ok := of.Cond.Possible(f); ok {
				conds = append(conds, own)
			}
		}
		c.packets(r, f, sampled(conds, maxConds))
	}
	return c.summary()
}

// program compiles the text of the policy, with the content of its list files.
func (w *writer) program(text string) (*ir.Program, error) {
	p, err := policy.Parse("imported policy", []byte(text))
	if err != nil {
		return nil, err
	}
	for i := range p.Sets {
		if p.Sets[i].File == "" {
			continue
		}
		p.Sets[i].File, p.Sets[i].Inline = "", []policy.AddrRange{}
		for _, s := range w.sets {
			if s.Final != p.Sets[i].Name {
				continue
			}
			for _, r := range s.Ranges {
				p.Sets[i].Inline = append(p.Sets[i].Inline, policy.AddrRange{First: r.From(), Last: r.To()})
			}
		}
	}
	program, _, err := compile.Lower(p)
	return program, err
}

// has reports whether a set has an address. For countries it uses the addresses in the policy.
func (c *comparison) has(s *saved.Set, a netip.Addr) bool {
	if s.Countries == nil {
		return inRanges(s.Ranges, a)
	}
	return slices.ContainsFunc(c.program.Sets, func(p ir.Set) bool { return p.Name == s.Final && p.Static != nil && p.Static.Contains(a) })
}

// world gives the policy's dynamic sets and limits the same state as the trace.
func (c *comparison) world(exceeded bool) ir.World {
	return ir.World{
		Member: func(i int, a netip.Addr) bool {
			s := &c.program.Sets[i]
			if s.Dynamic.Local {
				return slices.Contains(ownAddresses, a)
			}
			return slices.ContainsFunc(c.rs.Sets, func(of *saved.Set) bool { return of.Final == s.Name && inRanges(of.Ranges, a) })
		},
		Over: func(int, *packet.Packet) bool { return exceeded },
		Connections: func(r *ir.Rule, _ *packet.Packet) int {
			if exceeded {
				return int(r.Connections.Most)
			}
			return 0
		},
	}
}

// packets compares packets for single conditions and for pairs of them.
func (c *comparison) packets(r *rand.Rand, f saved.Family, conds []saved.Cond) {
	if len(conds) == 0 {
		return
	}
	r.Shuffle(len(conds), func(i, j int) { conds[i], conds[j] = conds[j], conds[i] })
	for n := range min(max(packetsOfAll/len(conds), leastOfEach), mostOfEach) {
		for i := range conds {
			if c.steps <= 0 {
				return
			}
			var h packet.Hints
			c.hints(&h, &conds[i], f)
			if n%2 == 1 {
				c.hints(&h, &conds[r.IntN(len(conds))], f)
			}
			for tries := 0; tries < maxTries && !c.one(r, f, packet.RandomSpec(r, h)); tries++ {
			}
		}
	}
}

// one compares one packet. It returns false if the packet is not of the family, or if the packet is changed before the rules see it.
func (c *comparison) one(r *rand.Rand, f saved.Family, spec packet.Spec) bool {
	pkt := spec.Packet()
	number := saved.FamilyValues[f]
	if pkt.Kind != packet.IP || !number.Has(pkt.Value[packet.Family]) || pkt.Value[packet.VLAN] != packet.VLANNone ||
		pkt.Value[packet.Fragment] != packet.FragmentNone && c.tracked[f] {
		return false
	}
	w := trace{files: &c.files, pkt: &pkt, family: f, device: c.devices[r.IntN(len(c.devices))]}
	state, ok := c.state(w, r.Uint32N(packet.StateUntracked))
	if !ok {
		return true
	}
	pkt.Value[packet.State] = state
	text := spec.String()
	for name, s := range saved.StateNames {
		if s == state && s != packet.StateNew {
			text += " state=" + name
		}
	}
	for _, exceeded := range []bool{false, true} {
		if exceeded && !c.limits[f] {
			break
		}
		w.exceeded = exceeded
		c.verdicts(w, text)
	}
	return true
}

// state returns the state of a packet. The packet is untracked if and only if rules exempt it from connection tracking. ok is false in two cases: it
// is unknown whether rules exempt the packet, or the rules exempt only the other direction, and the policy then exempts both.
func (c *comparison) state(w trace, state uint32) (uint32, bool) {
	back := *w.pkt
	back.Src, back.Dst = w.pkt.Dst, w.pkt.Src
	back.Value[packet.SPort], back.Value[packet.DPort] = w.pkt.Value[packet.DPort], w.pkt.Value[packet.SPort]
	known := true
	other := w
	other.pkt = &back
	for _, s := range c.spared {
		if s.chain.Table.Families&w.family == 0 {
			continue
		}
		for _, one := range []*trace{&w, &other} {
			of := no
			for i := range s.rule.Alts {
				of = max(of, one.holds(&s.rule.Alts[i], s.rule))
			}
			switch {
			case of == no:
			case one == &w && of == yes && s.chain.Hook == saved.HookPrerouting:
				state = packet.StateUntracked
			default:
				known = false
			}
		}
	}
	return state, known || state == packet.StateUntracked
}

// verdicts compares all verdicts that a packet can get with the policy's verdict.
func (c *comparison) verdicts(w trace, text string) {
	verdict, reason := c.program.Eval(w.pkt, c.world(w.exceeded))
	if reason.Kind == ir.ReasonCheck {
		return // the report already names the checks that the policy adds
	}
	c.tried++
	name := c.program.ReasonName(reason)
	w.ways(func(end *trace, passed bool) {
		if end.aside || passed == (verdict == ir.Pass) || c.explained(end, name) {
			return
		}
		c.differs(end, passed, name, text)
	})
}

// explained reports whether the report names a rule that a packet met, or the origin of the policy's rule.
func (c *comparison) explained(end *trace, rule string) bool {
	lost := func(at saved.Place) bool { return c.lost[at] }
	return slices.ContainsFunc(end.met, lost) || slices.ContainsFunc(c.origin[rule], lost)
}

// maxTold is the largest number of rules whose differences are reported.
const maxTold = 8

// differs reports a difference at the rule of the files that decided.
func (c *comparison) differs(end *trace, passed bool, rule, text string) {
	does, policyDoes := "drops", "passes"
	if c.open++; passed {
		c.open--
		c.closed++
		does, policyDoes = "passes", "drops"
	}
	if c.first == "" {
		c.first = text
	}
	key := fmt.Sprint(end.by.String(), rule, passed)
	if c.told[key] || len(c.told) == maxTold {
		return
	}
	c.told[key] = true
	if end.by == (saved.Place{}) {
		end.by = saved.Place{File: c.rs.File}
	}
	c.report.Lose(end.by, "%s %s, and the policy %s it (%s): an error of import, please report it", does, text, policyDoes, rule)
}

// condsOf returns the conditions of the rules, each combined with those on the path to it.
func condsOf(rs *saved.Ruleset, f saved.Family, router bool) (conds []saved.Cond) {
	visits := map[*saved.Chain]int{}
	var follow func(c *saved.Chain, path saved.Cond)
	follow = func(c *saved.Chain, path saved.Cond) {
		const maxVisits, maxRules = 6, 400
		if visits[c]++; visits[c] > maxVisits || len(conds) > 4*maxConds {
			return
		}
		for _, r := range sampled(c.Rules, maxRules) {
			for _, a := range sampled(r.Alts, maxVisits) {
				both := path.And(a)
				both.Unknown, both.Limit, both.Marks, both.Devices, both.DNAT, both.Routed, both.Narrower = nil, nil, nil, nil, false, false, nil
				one, ok := both.Possible(f)
				if !ok {
					continue
				}
				conds = append(conds, one)
				if t := c.Table.Chains[r.Act.Target]; t != nil && (r.Act.Kind == saved.ActJump || r.Act.Kind == saved.ActGoto) {
					follow(t, one)
				}
			}
		}
	}
	for _, h := range []saved.Hook{saved.HookIngress, saved.HookPrerouting, saved.HookInput, saved.HookForward} {
		if h == saved.HookForward && !router {
			continue
		}
		for _, c := range rs.Base(f, h) {
			conds = append(conds, saved.Cond{})
			follow(c, saved.Cond{})
		}
	}
	return conds
}

// sampled returns at most n elements, evenly from the whole list.
func sampled[T any](list []T, n int) []T {
	if len(list) <= n {
		return list
	}
	out := make([]T, n)
	for i := range out {
		out[i] = list[i*len(list)/n]
	}
	return out
}

// hints adds the borders of the values that c tests.
func (c *comparison) hints(h *packet.Hints, of *saved.Cond, f saved.Family) {
	const most = 12
	for k, v := range of.Implied() {
		if packet.Field(k) >= packet.NumFields || packet.Field(k) == packet.Fragment && c.tracked[f] {
			continue
		}
		for _, s := range sampled(v, most) {
			h.Values[k] = append(h.Values[k], s.First, s.Last)
		}
	}
	for _, p := range of.Payload {
		for _, a := range p.At {
			h.Texts = append(h.Texts, []byte(a.Value))
		}
		for _, t := range p.Texts {
			h.Texts = append(h.Texts, []byte(t.Text))
		}
	}
	for _, t := range []saved.AddrTest{of.Src, of.Dst} {
		for _, s := range []*saved.AddrSet{t.In, t.Out} {
			if s == nil {
				continue
			}
			ranges := sampled(s.Ranges, most)
			for _, set := range s.Sets {
				ranges = append(slices.Clip(ranges), sampled(set.Ranges, most)...)
			}
			for _, r := range ranges {
				h.Addrs = append(h.Addrs, bordersOf(r)...)
			}
		}
	}
	for _, own := range ownAddresses {
		h.Addrs = append(h.Addrs, netip.PrefixFrom(own, own.BitLen()))
	}
}

// bordersOf returns a range as a prefix, or its ends.
func bordersOf(r netipx.IPRange) []netip.Prefix {
	if p, ok := r.Prefix(); ok {
		return []netip.Prefix{p}
	}
	return []netip.Prefix{netip.PrefixFrom(r.From(), r.From().BitLen()), netip.PrefixFrom(r.To(), r.To().BitLen())}
}
