// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// A rule that translates destinations publishes a port. A packet has one destination when it arrives, and another when the rules of input or forward
// see it. The policy sees the first destination before the kernel translates it, and the second one at its later stages. So it needs rules for both.

// published contains the packets whose destination a rule translates.
type published struct {
	rule  *saved.Rule
	chain *saved.Chain
	conds []saved.Cond
}

// publish produces rules for packets whose destination is translated. They come before the rules for all other packets.
func (w *follower) publish(rs *saved.Ruleset, all saved.Cond) {
	finder := w.another()
	for _, c := range rs.Base(w.family, saved.HookPrerouting) {
		if c.NAT {
			finder.follow(c, trail{paths: []saved.Cond{all}, sure: true})
		}
	}
	for _, p := range finder.published {
		d, _ := p.rule.Translation()
		for _, c := range p.conds {
			w.publishOne(rs, p, c, d)
		}
	}
}

// another returns a follower for the same packets that produces no rules.
func (w *follower) another() *follower {
	return &follower{family: w.family, devices: w.devices, dnat: w.dnat, marks: w.marks, report: &saved.Report{}, allowed: w.allowed}
}

func (w *follower) publishOne(rs *saved.Ruleset, p published, c saved.Cond, d saved.Destination) {
	if !d.Known || c.Unknown != nil {
		w.report.Lose(p.rule.At, "%s: the policy may cut the ports that it publishes", saved.Translate)
		return
	}
	inner := w.another()
	inner.translated, inner.exceeded = true, false
	t := c
	t.Dst = saved.AddrTest{In: &saved.AddrSet{Local: true}}
	hook, lax := saved.HookInput, false
	if d.Addr.IsValid() {
		t.Dst = saved.AddrTest{In: &saved.AddrSet{Ranges: []netipx.IPRange{d.Addr}}}
		if !d.Addr.From().IsLoopback() {
			hook, lax = saved.HookForward, true
		}
	}
	if d.Ports != nil {
		t.Field[packet.DPort] = translatedPorts(c, d.Ports)
	}
	t.Limit, t.DNAT = nil, false
	if t, ok := t.Possible(w.family); ok {
		inner.run(rs.Base(w.family, hook), trail{paths: []saved.Cond{t}, sure: true, passUnknown: lax}, true)
	}
	w.report.Translates(p.rule.At)
	w.report.Lose(p.rule.At, "translates addresses, and has to stay: the policy also passes what it does not translate, as it belongs to no connection")
	inner.out = append(inner.out, flat{verdict: pass, chain: p.chain})
	for _, f := range needed(inner.out, &saved.Report{}) {
		if f.over != nil {
			continue
		}
		f.Dst, f.Field[packet.DPort], f.Whole = c.Dst, c.Field[packet.DPort], false
		if f.Field[packet.Family] == nil {
			f.Cond = c
			f.Limit = nil
		}
		f.at, f.comment, f.name = append([]saved.Place{p.rule.At}, f.at...), p.rule.Comment, "published"
		f.Devices, f.Marks, f.Narrower, f.DNAT, f.wide = nil, nil, nil, false, false
		w.out = append(w.out, f)
		if f.verdict == pass && f.Covers(&c) {
			return
		}
	}
}

// translatedPorts returns ports in the coding of packet.DPort, for the protocols that c allows.
func translatedPorts(c saved.Cond, numbers saved.Values) saved.Values {
	out := saved.Values{}
	for _, proto := range []uint32{saved.ProtoTCP, saved.ProtoUDP} {
		if c.Field[packet.Proto].Has(proto) {
			v, _ := saved.PortsIn(numbers, proto)
			out = out.Or(v)
		}
	}
	return out
}

// finds records the packets that meet a rule that translates destinations.
func (p *traversal) finds(r *saved.Rule, conds []saved.Cond) {
	if _, does := r.Translation(); does && p.chain.NAT {
		p.published = append(p.published, published{r, p.chain, slices.Clone(conds)})
	}
}
