// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"bytes"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// trace evaluates one packet with the chains of the files as the kernel does: rule by rule, without flat rules. If it is unknown whether a rule
// matches, the trace follows both possibilities, one after the other.
type trace struct {
	*files
	pkt      *packet.Packet
	family   saved.Family
	device   string
	exceeded bool // true if all limits are exceeded, false if none is

	choices []bool // for each rule that perhaps matches, in order: whether the trace assumes that it matches
	chosen  int
	depth   int
	met     []saved.Place // rules that matched, or perhaps matched
	by      saved.Place   // the rule that decided
	aside   bool          // the files do not determine the verdict: the packet is translated, a service answers it, or a limit counts other packets
}

// files contains the data about all rules that a trace needs.
type files struct {
	rs     *saved.Ruleset
	router bool
	marks  map[saved.Family]bool
	dnat   bool
	limits map[saved.Family]bool
	spared []spared // the rules that exempt packets from connection tracking
	base   map[saved.Family]map[saved.Hook][]*saved.Chain
	member func(s *saved.Set, a netip.Addr) bool
	steps  int // number of steps that are left
}

// spared is a rule that exempts packets from connection tracking, and its chain.
type spared struct {
	chain *saved.Chain
	rule  *saved.Rule
}

// filesOf collects the information for traces.
func filesOf(rs *saved.Ruleset, router bool) files {
	f := files{rs: rs, router: router, dnat: translates(rs), marks: map[saved.Family]bool{}, limits: map[saved.Family]bool{},
		base: map[saved.Family]map[saved.Hook][]*saved.Chain{}}
	for _, family := range []saved.Family{saved.IPv4, saved.IPv6} {
		f.marks[family], f.limits[family] = marksPackets(rs, family), limits(rs, family)
		f.base[family] = map[saved.Hook][]*saved.Chain{}
		for _, h := range []saved.Hook{saved.HookIngress, saved.HookPrerouting, saved.HookInput, saved.HookForward} {
			f.base[family][h] = rs.Base(family, h)
		}
	}
	eachNotrack(rs, func(c *saved.Chain, r *saved.Rule) {
		if !r.Tracked {
			f.spared = append(f.spared, spared{c, r})
		}
	})
	return f
}

// ownAddresses are the addresses of the host in a trace.
var ownAddresses = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

// The limits of a trace: the nesting of chains, and the number of ways through rules that perhaps match.
const (
	maxDepth = 64
	maxWays  = 64
)

// ways calls yield with the end of each path that the packet may take.
func (w trace) ways(yield func(end *trace, passed bool)) {
	for range maxWays {
		one := w
		one.choices, one.chosen, one.met = slices.Clip(w.choices), 0, nil
		passed := one.through()
		yield(&one, passed)
		w.choices = one.choices[:one.chosen]
		for len(w.choices) > 0 && w.choices[len(w.choices)-1] {
			w.choices = w.choices[:len(w.choices)-1]
		}
		if len(w.choices) == 0 {
			return
		}
		w.choices = slices.Clone(w.choices)
		w.choices[len(w.choices)-1] = true
	}
}

// through evaluates the base chains in their order. It reports whether the packet passes them.
func (w *trace) through() bool {
	hook := saved.HookInput
	if here := slices.Contains(ownAddresses, w.pkt.Dst) || inRanges(saved.HereBound, w.pkt.Dst); w.router && !here {
		hook = saved.HookForward
	}
	for _, h := range []saved.Hook{saved.HookIngress, saved.HookPrerouting, hook} {
		for _, c := range w.base[w.family][h] {
			if h == saved.HookIngress && !slices.Contains(c.Devices, w.device) || c.NAT && h != saved.HookPrerouting {
				continue
			}
			switch w.chain(c) {
			case saved.ActDrop:
				return false
			case saved.ActNone:
				if w.met, w.by = append(w.met, c.PolicyAt), c.PolicyAt; c.Policy.Kind == saved.ActDrop && !c.NAT {
					return false
				}
			}
		}
	}
	return true
}

// chain evaluates the rules of a chain. It returns whether the packet is accepted, is dropped, or continues after the chain (ActNone).
func (w *trace) chain(c *saved.Chain) saved.ActionKind {
	if w.depth++; w.depth > maxDepth || w.steps <= 0 {
		w.aside = true
		return saved.ActNone
	}
	defer func() { w.depth-- }()
	for i := range c.Rules {
		r := &c.Rules[i]
		if w.steps--; !w.matches(r) {
			continue
		}
		w.met = append(w.met, r.At)
		switch r.Act.Kind {
		case saved.ActAccept:
			w.by = r.At
			return saved.ActAccept
		case saved.ActDrop, saved.ActReject:
			w.by = r.At
			return saved.ActDrop
		case saved.ActReturn:
			return saved.ActNone
		case saved.ActJump, saved.ActGoto:
			t := c.Table.Chains[r.Act.Target]
			if t == nil {
				continue
			}
			if end := w.chain(t); end != saved.ActNone || r.Act.Kind == saved.ActGoto {
				return end
			}
		case saved.ActUnknown:
			_, translates := r.Translation()
			_, proxies := r.Proxies()
			if w.aside = w.aside || translates && c.NAT || proxies; r.Act.MayDrop() && w.choose() {
				w.by = r.At
				return saved.ActDrop
			}
		}
	}
	return saved.ActNone
}

// choose returns the next choice, for a rule that perhaps matches.
func (w *trace) choose() bool {
	if w.chosen == len(w.choices) {
		w.choices = append(w.choices, false)
	}
	w.chosen++
	return w.choices[w.chosen-1]
}

// answer says whether a condition holds for a packet.
type answer uint8

const (
	no answer = iota
	perhaps
	yes
)

// matches reports whether a rule matches the packet.
func (w *trace) matches(r *saved.Rule) bool {
	if r.Alts == nil {
		return true
	}
	best := no
	for i := range r.Alts {
		best = max(best, w.holds(&r.Alts[i], r))
	}
	if best != perhaps {
		return best == yes
	}
	if r.Act.Kind == saved.ActNone {
		return false
	}
	w.met = append(w.met, r.At)
	return w.choose()
}

// holds returns whether c holds for the packet.
func (w *trace) holds(c *saved.Cond, r *saved.Rule) answer {
	for f, v := range c.Field {
		if v != nil && !v.Has(w.pkt.Value[f]) {
			return no
		}
	}
	if !w.address(c.Src, w.pkt.Src) || !w.address(c.Dst, w.pkt.Dst) {
		return no
	}
	for _, d := range c.Devices {
		if !d.Holds(w.device) {
			return no
		}
	}
	for i := range c.Payload {
		if hasBytes(&c.Payload[i], w.pkt) == c.Payload[i].Not {
			return no
		}
	}
	switch {
	case c.DNAT && !w.dnat, c.Routed && !w.pkt.Failed.Has(packet.SourceRoute):
		return no
	case c.Limit != nil && c.Limit.Connections > 0 && w.pkt.Value[packet.State] != packet.StateNew:
		w.aside = true // the policy counts only the first packets of connections
		return no
	case c.Limit != nil && c.Limit.Above != w.exceeded:
		w.met = append(w.met, r.At)
		return no
	}
	for _, m := range c.Marks {
		if !w.marks[w.family] && (m.Value == 0) == m.Not { // no packet has a mark
			return no
		}
	}
	if c.Unknown != nil || c.DNAT || c.Routed || c.Marks != nil && w.marks[w.family] {
		return perhaps
	}
	return yes
}

func (w *trace) address(t saved.AddrTest, a netip.Addr) bool {
	return (t.In == nil || w.in(t.In, a)) && (t.Out == nil || !w.in(t.Out, a))
}

func (w *trace) in(s *saved.AddrSet, a netip.Addr) bool {
	if s.Local && slices.Contains(ownAddresses, a) || inRanges(s.Ranges, a) {
		return true
	}
	return slices.ContainsFunc(s.Sets, func(of *saved.Set) bool { return w.member(of, a) })
}

// inRanges reports whether one of the sorted ranges contains an address.
func inRanges(ranges []netipx.IPRange, a netip.Addr) bool {
	n, _ := slices.BinarySearchFunc(ranges, a, func(r netipx.IPRange, a netip.Addr) int { return r.To().Compare(a) })
	return n < len(ranges) && ranges[n].Contains(a)
}

// hasBytes reports whether a packet has the bytes that p tests for. It ignores p.Not.
func hasBytes(p *saved.Payload, pkt *packet.Packet) bool {
	for _, a := range p.At {
		from := pkt.Payload
		if a.Header {
			from = pkt.L4
		}
		if len(from) < a.Offset+len(a.Value) {
			return false
		}
		for i := range len(a.Value) {
			if from[a.Offset+i]&a.Mask[i] != a.Value[i] {
				return false
			}
		}
	}
	return len(p.Texts) == 0 || slices.ContainsFunc(p.Texts, func(t saved.Text) bool {
		text, payload := []byte(t.Text), pkt.Payload[:min(len(pkt.Payload), t.Within)]
		if t.NoCase {
			text, payload = bytes.ToLower(text), bytes.ToLower(payload)
		}
		return bytes.Contains(payload, text)
	})
}
