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

// chain begins a chain; a base chain has its place as nft writes it.
func (n *generator) chain(name, place string) {
	fmt.Fprintf(n.writing, "\tchain %s {\n", name)
	if place != "" {
		n.out.Chains = append(n.out.Chains, name)
		fmt.Fprintf(n.writing, "\t\ttype filter hook %s; policy accept;\n", place)
	}
}

// end ends the chain that is being written. Those that it calls stand before it.
func (n *generator) end() {
	n.chains.WriteString(n.writing.String() + "\t}\n\n")
	n.writing.Reset()
}

// line writes a line of a chain, of words of which some may be empty.
func (n *generator) line(words ...string) {
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	fmt.Fprintf(n.writing, "\t\t%s\n", strings.Join(words, " "))
}

func (n *generator) remark(format string, args ...any) { n.line("# " + fmt.Sprintf(format, args...)) }

// stage writes the rest of a chain: the checks, the rules of a stage, and the default when it is decided there. When any
// of that reads L4 headers, later fragments go to a chain of their own, with what can match them, unless the lines that read
// such a header ask for it themselves.
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

// fragments writes the chain for later fragments, and returns the lines that send them there; or, when nothing would be
// decided there, those that let them go.
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
			n.line("accept") // a chain that is called may have sent them here
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

// steps writes the rules of a stage into a chain, and the default when it is decided there.
func (n *generator) steps(chain string, steps []plan.Step, s plan.Stage, p chainInput) {
	n.rules(chain, steps, s, p)
	n.byDefault(s)
}

// byDefault writes the default when it is decided at a stage.
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
	if step.Again { // what does not come from outside is let by in any case
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

// decide writes a line that counts, when count is given, and ends with a verdict. Only TCP has resets. What must not be
// answered, ICMP errors, multicast and later fragments, the kernel drops without (net/ipv4/icmp.c, __icmp_send;
// net/ipv4/netfilter/nf_reject_ipv4.c).
func (n *generator) decide(l ruleLine, count string, v ir.Verdict) {
	verdict := [...]string{ir.Pass: "accept", ir.Drop: "drop", ir.Reject: "reject with icmpx port-unreachable"}[v]
	if v == ir.Reject && slices.Equal(l.proto, ranges.Of(packet.ProtoTCP)) {
		verdict = "reject with tcp reset"
	}
	n.line(l.text, count, verdict)
}

// quoted writes names as one word or a list.
func quoted(names []string) string {
	words := make([]string, len(names))
	for i, name := range names {
		words[i] = fmt.Sprintf("%q", name)
	}
	return listText(words)
}

// vlans are what the names of VLAN devices on the policy's devices begin with: the device's, where there is place for more.
func (n *generator) vlans() (patterns []string) {
	for _, d := range n.options.Devices {
		if len(d) <= plan.MaxBeforeVLAN {
			patterns = append(patterns, d+".*")
		}
	}
	return patterns
}

// outside is what packets that come in by the policy's devices have in iifname, VLAN devices included.
func (n *generator) outside() string { return quoted(slices.Concat(n.options.Devices, n.vlans())) }

// fewDevices is how many devices at most have a test for each one's VLANs, which packets from inside are asked one by one. The
// kernel has room for some 60 in a rule (net/netfilter/nf_tables_api.c, NFT_RULE_MAXEXPRS).
const fewDevices = 4

// inside tests that a packet comes in by another device. A packet from outside mostly fails the first test, which asks for
// the devices themselves; a lookup of name patterns takes longer than that.
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

// entrance begins a chain that packets of all devices come to, with a line that lets those from inside by; or it returns
// the test that the lines of the rules need in its place.
func (n *generator) entrance(s plan.Stage, steps []plan.Step) (outside term) {
	if n.plan.AsksDeviceLast(s, steps) {
		return way("iifname " + n.outside())
	}
	n.line(n.inside(), "accept")
	return nil
}

// hookDevices are the devices of a hook at ingress.
func (n *generator) hookDevices() string {
	if len(n.options.Devices) > 1 {
		return "devices = " + quoted(n.options.Devices)
	}
	return "device " + quoted(n.options.Devices)
}

// ingress writes the chain of what the packet alone decides.
func (n *generator) ingress() {
	checks := n.checks(plan.StageIngress)
	if !n.plan.Stands(plan.StageIngress) {
		return
	}
	n.chain("ingress", "ingress "+n.hookDevices()+" priority "+priorityFirst)
	n.stage("ingress", plan.StageIngress, checks, nil)
}

// raw writes the chain of what the routing table decides.
func (n *generator) raw() {
	checks := n.checks(plan.StageRaw)
	if len(checks.all()) == 0 && !n.plan.Uses(plan.StageRaw) {
		return
	}
	n.chain("raw", "prerouting priority "+priorityFirst)
	n.stage("raw", plan.StageRaw, checks, n.entrance(plan.StageRaw, n.plan.At(plan.StageRaw)))
}

// filter writes the chains of what may need conntrack, or costs least there. Packets for this host and those on their way
// through go the same way, but for rules that differ for them; where there is nothing to decide of the latter, they go none.
func (n *generator) filter() {
	if !n.plan.Uses(plan.StageFilter) {
		return
	}
	all := n.plan.At(plan.StageFilter)
	differs := func(s plan.Step) bool { return plan.DiffersForwarded(n.plan, &n.plan.Program.Rules[s.Rule]) }
	early := func(s plan.Step) bool { // these can stand before all others
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

// senders begins a chain at filter with the checks of who may send, where replies pass before them.
func (n *generator) senders() {
	checks := n.checks(plan.StageFilter)
	write := func(list []packet.Check, verdict string) {
		lines := n.checkLines(list, verdict)
		for i := range lines {
			lines[i].text += " " + noReply
		}
		n.plainGuards(lines, "")
	}
	write(checks.dropping, "drop")
	if len(checks.observed) > 0 {
		n.line("jump", n.called("filter-observed", func() { write(checks.observed, "return") }))
	}
}

// noReply tests that a packet answers none that left.
const noReply = "ct state new,invalid,untracked"

// hook writes the chain of a hook at filter: rules, and then those of the chain next, or the default.
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
