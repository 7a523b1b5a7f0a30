// SPDX-License-Identifier: Apache-2.0

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

// payloadLines are the lines of a rule, which may include tests of the payload.
type payloadLines struct {
	except []ruleLine // exceptions: a packet that matches one of them does not match the rule
	lines  []ruleLine
}

// ways returns the lines of a rule, including its tests of the payload. If the data that a test reads is not in the packet, the test of nft fails,
// even if it is negated. So negated tests of the payload become exceptions.
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

// withTests adds to lines the tests of all payload matches whose Not is equal to the parameter not. These tests come first. If they came after a test
// of the protocol, nft 1.0.6 would list the bytes of the header as fields, and some of these have another meaning. For a protocol whose header it
// does not know, nft aborts (src/payload.c, payload_expr_complete). A TCP segment whose data offset is less than 20 bytes has no payload, but the
// kernel would search for one within the header (net/netfilter/nft_payload.c, nft_payload_inner_offset).
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

// atTest returns a test of bytes in packets of a kind. The payload of TCP begins at the end of a header of variable length. nft supports such offsets
// from Linux 5.16 on. The payload of other protocols has a fixed offset.
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

// act writes the lines of a rule, with its verdict. Exceptions need a called chain. So do packets that match several lines but must be charged or
// counted only once. The called chain returns packets that the rule does not decide.
func (n *generator) act(rule int, w payloadLines, count string, p chainInput) {
	r := &n.plan.Program.Rules[rule]
	if w.except == nil && (!match.Metered(r) || !match.Limited(r) && len(w.lines) == 1) {
		for _, l := range w.lines {
			n.finish(l, count, r)
		}
		return
	}
	if w.except == nil && len(w.lines) == 1 {
		if w.lines[0].text == "" && n.charges(rule) { // no test would be repeated in the chain of the limits
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

// finish writes a line that decides packets, or only counts them if the rule only observes.
func (n *generator) finish(l ruleLine, count string, r *ir.Rule) {
	if r.Observe {
		n.line(l.text, count)
		return
	}
	n.decide(l, count, r.Verdict)
}

// over returns the name of a chain for packets that pass all other tests of a rule. The chain decides packets that exceed any of the rule's limits.
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

// charges reports whether packets within the limits of a rule are only charged, and then continue with the following lines.
func (n *generator) charges(rule int) bool {
	return !n.plan.Program.Rules[rule].Observe && !n.plan.Joined(rule+1)
}

// overLimits writes lines that match packets above any limit of a rule.
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

// overChain is the key of a chain that over has written: the rule, and the direction of the packets.
type overChain struct {
	rule      int
	direction string
}

// exceeded writes the lines of one limit. For a reject, TCP and other protocols need different answers, but the packet must be charged only once.
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

// called writes a chain before the chains that call it, and returns its name. If a chain with the same lines already exists, called returns the name
// of that chain.
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
