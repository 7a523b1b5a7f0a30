package nftables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// payloadLines are the lines of a rule that asks for payload.
type payloadLines struct {
	except []ruleLine // of packets that do not match, whatever the others say
	lines  []ruleLine
}

// ways are the lines of a rule with what it asks of the payload. As no test of nft holds when what it reads is not
// there, negated or not, what the payload must not have are exceptions.
func (n *generator) ways(r *ir.Rule, p chainInput) (w payloadLines) {
	if len(r.Payload) == 0 {
		return payloadLines{lines: n.lines(r, p)}
	}
	if !match.NeedsPayload(r) {
		bare := *r
		bare.Payload = nil
		w.lines = n.lines(&bare, p)
	}
	for _, k := range match.PayloadKinds(r) {
		if k.Kind == match.LaterFragment {
			continue
		}
		lines := n.lines(&k.Rule, p)
		if match.NeedsPayload(r) {
			w.lines = append(w.lines, withTests(lines, k.Kind, r.Payload, false)...)
		}
		for _, m := range r.Payload {
			if m.Not {
				w.except = append(w.except, withTests(lines, k.Kind, []ir.PayloadMatch{m}, true)...)
			}
		}
	}
	return w
}

// withTests adds to lines the tests of all payload matches that are negated, or that are not. They come first: behind a test
// of the protocol, nft 1.0.6 lists bytes of its header as fields, and some of that means something else; where it knows no
// header of the protocol, it aborts (src/payload.c, payload_expr_complete). A segment whose header says that it is shorter than
// 20 bytes has no payload; the kernel would look for one within the header (net/netfilter/nft_payload.c, nft_payload_inner_offset).
func withTests(lines []ruleLine, kind match.Kind, payload []ir.PayloadMatch, not bool) []ruleLine {
	var tests []string
	whole := false
	for _, m := range payload {
		for _, a := range m.At {
			if m.Not == not {
				tests = append(tests, atTest(a, kind))
				whole = whole || kind == match.TCP && a.Base == ir.BasePayload
			}
		}
	}
	if whole {
		tests = append(tests, "tcp doff >= 5")
	}
	out := slices.Clone(lines)
	for i := range out {
		out[i].text = strings.TrimSuffix(strings.Join(tests, " ")+" "+out[i].text, " ")
	}
	return out
}

// atTest writes a test of bytes in a packet of a kind. The payload of TCP is where its header ends, which nft knows from
// Linux 5.16 on; that of the others has a fixed place.
func atTest(a ir.At, kind match.Kind) string {
	base, offset := "th", int(a.Offset)
	switch {
	case a.Base == ir.BaseL4:
	case kind == match.TCP:
		base = "ih"
	case kind == match.UDP || kind == match.ICMP || kind == match.ICMPv6:
		offset += match.L4Header
	}
	field := fmt.Sprintf("@%s,%d,%d", base, 8*offset, 8*len(a.Value))
	if slices.ContainsFunc(a.Mask, func(b byte) bool { return b != 0xff }) {
		field += fmt.Sprintf(" & 0x%x ==", a.Mask)
	}
	return fmt.Sprintf("%s 0x%x", field, a.Value)
}

// act writes the lines that decide what a rule matches, as w says. Where one line does not do, because of exceptions or
// because packets must be charged or counted once, a chain is called: it returns what the rule leaves to those after it.
func (n *generator) act(rule int, w payloadLines, count string, p chainInput) {
	r := &n.plan.Program.Rules[rule]
	if w.except == nil && (!match.Metered(r) || !match.Limited(r) && len(w.lines) == 1) {
		for _, l := range w.lines {
			n.finish(l, count, r)
		}
		return
	}
	if w.except == nil && len(w.lines) == 1 {
		if w.lines[0].text == "" && n.charges(rule) { // nothing would be asked twice
			n.overLimits(rule, count, p)
			return
		}
		n.line(w.lines[0].text, "jump", n.over(rule, count, p))
		return
	}
	n.line("jump", n.called("match-"+r.Name, func() {
		for _, l := range w.except {
			n.line(l.text, "return")
		}
		for _, l := range w.lines {
			switch {
			case match.Limited(r):
				n.line(l.text, "goto", n.over(rule, count, p))
			case r.Observe:
				n.line(l.text, count, "return")
			default:
				n.finish(l, count, r)
			}
		}
	}))
}

// finish writes a line that decides, or only counts.
func (n *generator) finish(l ruleLine, count string, r *ir.Rule) {
	if r.Observe {
		n.line(l.text, count)
		return
	}
	n.decide(l, count, r.Verdict)
}

// over is the chain for what all else of a rule holds for: what exceeds any of its limits.
func (n *generator) over(rule int, count string, p chainInput) (chain string) {
	key := overChain{rule, p.direction}
	if chain, ok := n.overs[key]; ok {
		return chain
	}
	n.overs[key] = n.called("over-"+n.plan.Program.Rules[rule].Name, func() {
		n.overLimits(rule, count, p)
		if n.plan.Joined(rule + 1) {
			n.decide(ruleLine{proto: match.AllProtocols}, n.count(rule+1), n.plan.Program.Rules[rule+1].Verdict)
		}
	})
	return n.overs[key]
}

// charges reports whether all that a rule does to a packet within its limits is to charge it: lines behind it go on.
func (n *generator) charges(rule int) bool {
	return !n.plan.Program.Rules[rule].Observe && !n.plan.Joined(rule+1)
}

// overLimits writes the lines of what exceeds any of a rule's limits.
func (n *generator) overLimits(rule int, count string, p chainInput) {
	r := &n.plan.Program.Rules[rule]
	if r.Connections != nil {
		for _, text := range n.crowdLines(rule, p) {
			n.exceeded(text, count, r)
		}
	}
	for _, limit := range r.Over {
		for _, text := range n.overLines(limit, p) {
			n.exceeded(text, count, r)
		}
	}
}

// overChain is a chain of over: that of a rule, for packets of a direction.
type overChain struct {
	rule      int
	direction string
}

// exceeded writes the lines of one limit. A packet must not be charged twice for TCP having an answer of its own.
func (n *generator) exceeded(text, count string, r *ir.Rule) {
	switch {
	case r.Observe:
		n.line(text, count, "return")
	case r.Verdict == ir.Reject:
		n.line(text, count, "goto", n.called("rejected", func() {
			n.decide(ruleLine{text: "meta l4proto tcp", proto: ranges.Of(packet.ProtoTCP)}, "", r.Verdict)
			n.decide(ruleLine{proto: match.AllProtocols}, "", r.Verdict)
		}))
	default:
		n.decide(ruleLine{text: text, proto: match.AllProtocols}, count, r.Verdict)
	}
}

// called writes a chain that others call, before them, unless one has the same lines, and returns its name.
func (n *generator) called(name string, write func()) string {
	main := n.writing
	n.writing = &strings.Builder{}
	write()
	body := n.writing.String()
	have, ok := n.bodies[body]
	if !ok {
		have = n.names.add(name)
		n.bodies[body] = have
		n.writing.Reset()
		n.chain(have, "")
		n.writing.WriteString(body)
		n.end()
	}
	n.writing = main
	return have
}
