// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// chain begins a chain. place is the hook and the priority of a base chain in the syntax of nft, and "" for other chains.
func (n *generator) chain(name, place string) {
	fmt.Fprintf(n.writing, "\tchain %s {\n", name)
	if place != "" {
		n.out.Chains = append(n.out.Chains, name)
		fmt.Fprintf(n.writing, "\t\ttype filter hook %s; policy accept;\n", place)
	}
}

// end ends the current chain. Chains that it calls are written before it.
func (n *generator) end() {
	n.chains.WriteString(n.writing.String() + "\t}\n\n")
	n.writing.Reset()
}

// line writes a line of a chain. It omits empty words.
func (n *generator) line(words ...string) {
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	fmt.Fprintf(n.writing, "\t\t%s\n", strings.Join(words, " "))
}

func (n *generator) remark(format string, args ...any) { n.line("# " + fmt.Sprintf(format, args...)) }

// stage writes the rest of a chain: the checks, the rules of a stage, and the default if the stage decides it. If any of these read L4 headers, later
// fragments go to a chain of their own, which has only the tests that can match them. There is no such chain if every line that reads an L4 header
// excludes later fragments itself.
func (n *generator) stage(name string, s plan.Stage, checks stageChecks, outside term) {
	steps := n.plan.At(s)
	header := slices.IndexFunc(checks.dropping, readsL4)
	if header < 0 {
		header = len(checks.dropping)
	}
	guards := n.checkLines(checks.dropping[:header], "drop")
	checks.dropping = checks.dropping[header:]
	place := chainInput{fragments: anyFragment, ingress: s == plan.StageIngress, outside: outside}
	if slices.ContainsFunc(checks.all(), readsL4) || n.plan.PartsFragments(s, steps) {
		guards = append(guards, n.fragments(name, s, steps, checks, place)...)
		place.fragments = firstFragment
	}
	n.guards(name, append(guards, n.checkLines(checks.dropping, "drop")...))
	n.observe(name, checks.observed)
	n.steps(name, steps, s, place)
	n.end()
}

// fragments writes the chain for later fragments. It returns the lines that send them to that chain. If the chain would decide nothing, it is not
// written, and the returned lines accept later fragments.
func (n *generator) fragments(name string, s plan.Stage, steps []plan.Step, checks stageChecks, p chainInput) []guardLine {
	main := n.writing
	n.writing = &strings.Builder{}
	name += "-fragments"
	n.chain(name, "")
	n.plainGuards(n.checkLines(slices.DeleteFunc(slices.Clone(checks.dropping), readsL4), "drop"), "")
	n.observe(name, slices.DeleteFunc(slices.Clone(checks.observed), readsL4))
	p.fragments = laterFragments
	n.steps(name, steps, s, p)
	verdict := "accept"
	if text := n.writing.String(); strings.Contains(text, "counter name ") || strings.Contains(text, "jump ") {
		verdict = "goto " + name
		if !n.plan.DefaultActs(s) {
			n.line("accept") // a called chain may have sent the fragments here
		}
		n.end()
	}
	n.writing = main
	const remark = "later fragments have no ports, flags or types"
	return []guardLine{
		{remark, "ip frag-off & 0x1fff != 0", []string{verdict}},
		{remark, "frag frag-off != 0", []string{verdict}},
	}
}

// steps writes the rules of a stage into a chain, and the default if the stage decides it.
func (n *generator) steps(chain string, steps []plan.Step, s plan.Stage, p chainInput) {
	n.rules(chain, steps, s, p)
	n.byDefault(s)
}

// byDefault writes the default if the stage decides it.
func (n *generator) byDefault(s plan.Stage) {
	if !n.plan.Default.At(s) {
		return
	}
	if !n.plan.DefaultActs(s) {
		n.remark("default: %s, which is not counted", n.plan.Program.Default)
		return
	}
	if n.out.Default == "" {
		n.out.Default = n.names.add("default")
		n.counters = append(n.counters, n.out.Default)
	}
	n.remark("default: %s", n.plan.Program.Default)
	n.decide(ruleLine{proto: match.AllProtocols}, countText(n.out.Default), n.plan.Program.Default)
}

// rule writes the lines of a rule.
func (n *generator) rule(step plan.Step, s plan.Stage, p chainInput) {
	r := n.plan.Of(step, s)
	if !step.Again && n.plan.Joined(step.Rule) {
		return
	}
	count := ""
	if step.Again { // packets from inside are accepted in any case, so the device need not be tested
		p.outside = nil
	} else {
		count = n.count(step.Rule)
	}
	w := n.ways(r, p)
	if len(w.lines) == 0 {
		return
	}
	what := fmt.Sprintf("%s %s", counterKinds[r.Kind], strings.TrimPrefix(r.Name, counterKinds[r.Kind]+":"))
	switch {
	case step.Wait:
		n.remark("what %s can match is decided at %s", what, n.plan.Rules[step.Rule].Last())
		for _, l := range w.lines {
			n.finish(l, "", r)
		}
		return
	case step.Again:
		n.remark("%s has been passed and counted at %s", what, n.plan.Rules[step.Rule].Stage)
	case r.Merged > 1:
		n.remark("%s and others, %d in one", what, r.Merged)
	default:
		n.remark("%s", what)
	}
	n.protect(step.Rule, s, p)
	n.act(step.Rule, w, count, p)
}

// decide writes a line that ends with a verdict. If count is not empty, the line also counts. Only TCP has resets, so a reject takes one line for TCP
// and another for other protocols. The kernel sends no answer to packets that must not be answered: ICMP errors, multicast and later fragments
// (net/ipv4/icmp.c, __icmp_send; net/ipv4/netfilter/nf_reject_ipv4.c).
func (n *generator) decide(l ruleLine, count string, v ir.Verdict) {
	verdict := [...]string{ir.Pass: "accept", ir.Drop: "drop", ir.Reject: "reject with icmpx port-unreachable"}[v]
	if v == ir.Reject && slices.Equal(l.proto, ranges.Of(packet.ProtoTCP)) {
		verdict = "reject with tcp reset"
	}
	n.line(l.text, count, verdict)
}

// quoted returns names in quotes, as one word or as a list.
func quoted(names []string) string { return listText(quotes(names)) }

func quotes(names []string) []string {
	words := make([]string, len(names))
	for i, name := range names {
		words[i] = fmt.Sprintf("%q", name)
	}
	return words
}

// vlans returns name patterns for the VLAN devices of the policy's devices. There is no pattern for a device whose name is too long for a VLAN
// suffix.
func (n *generator) vlans() (patterns []string) {
	for _, d := range n.options.Devices {
		if len(d) <= plan.MaxBeforeVLAN {
			patterns = append(patterns, d+".*")
		}
	}
	return patterns
}

// outside returns the iifname values of packets from the policy's devices and their VLAN devices.
func (n *generator) outside() string { return quoted(slices.Concat(n.options.Devices, n.vlans())) }

// fewDevices is the largest number of devices for which each VLAN pattern is a separate test. Packets from inside must pass all of these tests. A
// rule has space for about 60 expressions (net/netfilter/nf_tables_api.c, NFT_RULE_MAXEXPRS).
const fewDevices = 4

// inside returns the test that a packet arrives by a device that is not in the policy. Most packets from outside fail the first part of the test,
// which compares the names of the devices. A lookup of name patterns would take longer.
func (n *generator) inside() string {
	if len(n.options.Devices) > fewDevices {
		return "iifname != " + n.outside()
	}
	tests := []string{"iifname != " + quoted(n.options.Devices)}
	for _, pattern := range n.vlans() {
		tests = append(tests, fmt.Sprintf("iifname != %q", pattern))
	}
	return strings.Join(tests, " ")
}

// entrance writes the first line of a chain that packets from all devices enter. The line accepts packets from inside. If each rule tests the device
// itself (AsksDeviceLast), entrance writes nothing and returns that test. The test has one alternative for the devices and one for their VLANs. A
// single set with names and patterns would be a set of intervals, and a lookup in it takes longer than a line that does not match.
func (n *generator) entrance(s plan.Stage, steps []plan.Step) (outside term) {
	if n.plan.AsksDeviceLast(s, steps) {
		outside = way("iifname " + quoted(n.options.Devices))
		if vlans := n.vlans(); len(vlans) > 0 {
			outside = append(outside, way("iifname "+quoted(vlans))...)
		}
		return outside
	}
	n.line(n.inside(), "accept")
	return nil
}

// hookDevices returns the devices of an ingress hook in the syntax of nft, which accepts no line break within this list (flowtable_list_expr of
// parser_bison.y).
func (n *generator) hookDevices() string {
	if len(n.options.Devices) > 1 {
		return "devices = { " + strings.Join(quotes(n.options.Devices), ", ") + " }"
	}
	return "device " + quoted(n.options.Devices)
}

// ingress writes the chain of the ingress stage. Its rules use only data of the packet.
func (n *generator) ingress() {
	checks := n.checks(plan.StageIngress)
	if !n.plan.Stands(plan.StageIngress) {
		return
	}
	n.chain("ingress", "ingress "+n.hookDevices()+" priority "+priorityFirst)
	n.stage("ingress", plan.StageIngress, checks, nil)
}

// raw writes the chain of the raw stage. Its checks may also use the routing table.
func (n *generator) raw() {
	checks := n.checks(plan.StageRaw)
	if len(checks.all()) == 0 && !n.plan.Uses(plan.StageRaw) {
		return
	}
	n.chain("raw", "prerouting priority "+priorityFirst)
	n.stage("raw", plan.StageRaw, checks, n.entrance(plan.StageRaw, n.plan.At(plan.StageRaw)))
}

// filter writes the chains of the filter stage. Its rules need conntrack, or cost least at this stage. Packets to this host and forwarded packets
// share a chain, except for rules that differ for the two. If no rule decides forwarded packets, there is no chain for them.
func (n *generator) filter() {
	if !n.plan.Uses(plan.StageFilter) {
		return
	}
	all := n.plan.At(plan.StageFilter)
	differs := func(s plan.Step) bool { return plan.DiffersForwarded(n.plan, &n.plan.Program.Rules[s.Rule]) }
	early := func(s plan.Step) bool { // these rules can come before all others
		return s.Again && differs(s) && n.plan.Proxied(s.Rule) == nil
	}
	shared := slices.DeleteFunc(slices.Clone(all), early)
	own := slices.DeleteFunc(slices.Clone(all), func(s plan.Step) bool { return !early(s) })
	place := chainInput{fragments: firstFragment}
	parted := n.plan.PartsFragments(plan.StageFilter, all)
	if !parted && n.plan.FragmentsAtFilter(all) {
		place.fragments = anyFragment
	}
	if !parted && !n.plan.AsksDeviceLast(plan.StageFilter, all) && !slices.ContainsFunc(shared, differs) {
		n.chain("filter", "")
		n.steps("filter", shared, plan.StageFilter, place)
		n.end()
		n.hook("input", own, "filter", place)
		n.hook("forward", own, "filter", place.forwarded())
		return
	}
	all = slices.Concat(own, shared)
	n.hook("input", all, "", place)
	n.hook("forward", all, "", place.forwarded())
}

// senders writes a call of a chain with the packet.SenderChecks, at the start of a filter chain. Replies skip these checks.
func (n *generator) senders() {
	checks := n.checks(plan.StageFilter)
	if len(checks.all()) == 0 {
		return
	}
	name := n.called("senders", func() {
		n.plainGuards(n.checkLines(checks.dropping, "drop"), "")
		n.observe("filter", checks.observed)
	})
	n.line("ct state new,invalid,untracked jump", name)
	n.line("ct state established,related", isForged, "jump", name)
}

// hook writes the chain of a filter hook. It has the rules in steps, and then a jump to the chain next. If next is "", the default follows the rules.
func (n *generator) hook(name string, steps []plan.Step, next string, p chainInput) {
	all := n.plan.At(plan.StageFilter)
	if p.hops > 0 && !n.plan.Forwards(all) {
		return
	}
	n.chain(name, name+" priority "+priorityFilter)
	p.outside = n.entrance(plan.StageFilter, all)
	n.senders()
	if n.plan.PartsFragments(plan.StageFilter, all) {
		n.guards(name, n.fragments(name, plan.StageFilter, steps, stageChecks{}, p))
	}
	n.translated(all, p)
	n.rules(name, steps, plan.StageFilter, p)
	if next != "" {
		n.line("jump " + next)
	} else {
		n.byDefault(plan.StageFilter)
	}
	n.end()
}
