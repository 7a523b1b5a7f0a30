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

// An import compares its policy with the files by packets of its own: at the borders of what the rules of both ask for. The files decide by
// trace.go, and the policy, as its text says, by ir.Eval. So it finds what is wrong between the two forms, and not what package saved has read
// wrongly: TestKernel finds that. A packet with two verdicts is explained when it met a rule that the report names, or
// when the policy's rule comes from one. Any other is an error of this package, and the report says so.

// What a comparison may take: packets of each condition, conditions, and rules that are asked, which are about a second.
const (
	packetsOfAll = 2000 // of a family, divided among what its rules ask for
	leastOfEach  = 4
	mostOfEach   = 100
	maxTries     = 8 // to draw one of the family
	maxConds     = 2500
	maxAsked     = 600_000
)

// comparison is the policy beside the files.
type comparison struct {
	files
	program *ir.Program
	origin  map[string][]saved.Place // of the policy's rules, by name
	report  *saved.Report
	lost    map[saved.Place]bool // what the report names before the comparison
	devices []string
	tracked map[saved.Family]bool // fragments are put together

	tried        int
	open, closed int // packets that only the policy passes, or drops, for no reason that is named
	first        string
	told         map[string]bool
}

// summary says that packets which import tried have another verdict by the policy, and no line of the report says why, or is "".
func (c *comparison) summary() string {
	if c.open+c.closed == 0 {
		return ""
	}
	return fmt.Sprintf("of %d packets that import tried, it passes %d that the files drop and drops %d that they pass, and no rule without an equal is the reason; one is %s",
		c.tried, c.open, c.closed, c.first)
}

// compare compares, and reports what it finds.
func (w *writer) compare(rs *saved.Ruleset, text string, devices []string, router bool, families saved.Family, list []flat) string {
	program, err := w.program(text)
	if err != nil || len(rs.Tables) == 0 {
		return "" // the policy is said to be refused
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

// program is what the text of the policy means, with the content of its list files.
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

// has is whether a set has an address: countries are those that the policy knows.
func (c *comparison) has(s *saved.Set, a netip.Addr) bool {
	if s.Countries == nil {
		return inRanges(s.Ranges, a)
	}
	return slices.ContainsFunc(c.program.Sets, func(p ir.Set) bool { return p.Name == s.Final && p.Static != nil && p.Static.Contains(a) })
}

// world answers for the policy's dynamic sets and limits as the trace does.
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

// packets compares packets that some conditions, and two of them together, ask for.
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

// one compares one packet. It reports whether that is one of the family which rules see as it is.
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

// state is the state that a packet has: untracked when rules take it out of connection tracking, and never when not. ok is false when
// that is not known, or the policy does so and the rules do not, as they take only the other direction out.
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

// verdicts compares all ends that a packet can come to with the policy's verdict.
func (c *comparison) verdicts(w trace, text string) {
	verdict, reason := c.program.Eval(w.pkt, c.world(w.exceeded))
	if reason.Kind == ir.ReasonCheck {
		return // the report says which checks the policy adds
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

// maxTold is how many rules are named at which the two differ.
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

// condsOf is what the rules ask of packets, on the ways on which these come to them.
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

// sampled is at most n of a list, from all of it.
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

// hints adds the borders of what c asks for.
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

// bordersOf is a range as a prefix, or its ends.
func bordersOf(r netipx.IPRange) []netip.Prefix {
	if p, ok := r.Prefix(); ok {
		return []netip.Prefix{p}
	}
	return []netip.Prefix{netip.PrefixFrom(r.From(), r.From().BitLen()), netip.PrefixFrom(r.To(), r.To().BitLen())}
}
