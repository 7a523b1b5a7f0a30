package importer

import (
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/packet"
)

// A rule that translates destinations publishes a port: a packet has one destination when it comes in, and another when
// the rules of input or forward see it. The policy sees the first before the kernel translates it, and at its later stages
// the second. So it needs rules for both.

// destination is what a rule translates destinations to.
type destination struct {
	addr  netipx.IPRange // not valid: the host itself
	ports values         // numbers; nil is the packet's own
	known bool
}

// published is packets whose destination is translated by a rule.
type published struct {
	rule  *rule
	chain *chain
	conds []cond
}

// parseDestination reads `ADDRESS[-ADDRESS][:PORT[-PORT]]`, an IPv6 address with ports in brackets.
func parseDestination(text string) (d destination) {
	addr, port := text, ""
	switch i := strings.LastIndexByte(text, ':'); {
	case strings.HasPrefix(text, "["):
		addr, port, _ = strings.Cut(text[1:], "]")
		port = strings.TrimPrefix(port, ":")
	case i >= 0 && strings.Count(text, ":") == 1:
		addr, port = text[:i], text[i+1:]
	}
	var ok bool
	if addr != "" {
		if d.addr, ok = parseRange(addr); !ok {
			return destination{}
		}
	}
	if port != "" {
		port, _, _ = strings.Cut(port, "/")
		s, ok := portSpan(port, "-")
		if !ok {
			return destination{}
		}
		d.ports = values{s}
	}
	d.known = true
	return d
}

// translation is what a rule's target translates destinations to.
func (r *rule) translation() (d destination, does bool) {
	switch r.act.target {
	case "DNAT":
		return parseDestination(r.argument("--to-destination")), true
	case "REDIRECT":
		return parseDestination(":" + r.argument("--to-ports")), true
	case "NETMAP":
		return destination{}, true
	case "dnat", "redirect":
		if r.to == nil {
			return destination{}, true
		}
		return *r.to, true
	}
	return destination{}, false
}

// nftDestination reads the body of dnat or redirect.
func nftDestination(body any) *destination {
	d := &destination{known: true}
	for key, v := range map[string]any{"addr": member(body, "addr"), "port": member(body, "port")} {
		switch {
		case v == nil:
		case key == "addr":
			d.addr, d.known = nftAddr(v)
		default:
			d.ports, d.known = portKind.spans(v)
		}
		if !d.known {
			break
		}
	}
	return d
}

// publish writes down what becomes of packets whose destination is translated, before the rules that see the others.
func (w *walker) publish(rs *ruleset, all cond) {
	finder := w.another()
	for _, c := range rs.base(w.family, hookPrerouting) {
		if c.nat {
			finder.walk(c, trail{paths: []cond{all}, sure: true})
		}
	}
	for _, p := range finder.published {
		d, _ := p.rule.translation()
		for _, c := range p.conds {
			w.publishOne(rs, p, c, d)
		}
	}
}

// another is a walker for the same packets that writes nothing down.
func (w *walker) another() *walker {
	return &walker{family: w.family, devices: w.devices, dnat: w.dnat, marks: w.marks, report: &report{}, allowed: w.allowed}
}

func (w *walker) publishOne(rs *ruleset, p published, c cond, d destination) {
	if !d.known || c.unknown != nil {
		w.report.lose(p.rule.at, "%s: the policy may cut the ports that it publishes", translate)
		return
	}
	inner := w.another()
	inner.translated, inner.exceeded = true, false
	t := c
	t.dst = addrTest{in: &addrSet{local: true}}
	hook, lax := hookInput, false
	if d.addr.IsValid() {
		t.dst = addrTest{in: &addrSet{ranges: []netipx.IPRange{d.addr}}}
		if !d.addr.From().IsLoopback() {
			hook, lax = hookForward, true
		}
	}
	if d.ports != nil {
		t.field[packet.DPort] = translatedPorts(c, d.ports)
	}
	t.limit, t.dnat = nil, false
	if t, ok := t.possible(w.family); ok {
		inner.run(rs.base(w.family, hook), trail{paths: []cond{t}, sure: true, lax: lax}, true)
	}
	w.report.translates(p.rule.at)
	w.report.lose(p.rule.at, "translates addresses, and has to stay: the policy also passes what it does not translate, as it belongs to no connection")
	inner.out = append(inner.out, flat{verdict: pass, chain: p.chain})
	for _, f := range needed(inner.out, &report{}) {
		if f.over != nil {
			continue
		}
		f.dst, f.field[packet.DPort], f.whole = c.dst, c.field[packet.DPort], false
		if f.field[packet.Family] == nil {
			f.cond = c
			f.limit = nil
		}
		f.at, f.comment, f.name = append([]place{p.rule.at}, f.at...), p.rule.comment, "published"
		f.devices, f.marks, f.narrower, f.dnat, f.wide = nil, nil, nil, false, false
		w.out = append(w.out, f)
		if f.verdict == pass && f.covers(&c) {
			return
		}
	}
}

// translatedPorts are ports in the coding of packet.DPort, for the protocols that c leaves.
func translatedPorts(c cond, numbers values) values {
	out := values{}
	for _, proto := range []uint32{protoTCP, protoUDP} {
		if c.field[packet.Proto].has(proto) {
			v, _ := portsIn(numbers, proto)
			out = out.or(v)
		}
	}
	return out
}

// finds keeps the packets that meet a rule that translates destinations.
func (p *passage) finds(r *rule, conds []cond) {
	if _, does := r.translation(); does && p.chain.nat {
		p.published = append(p.published, published{r, p.chain, slices.Clone(conds)})
	}
}
