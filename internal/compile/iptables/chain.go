package iptables

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

// familyBuilder is what Generate makes for iptables or ip6tables.
type familyBuilder struct {
	*builder
	family  uint32
	passing bool              // the rule that is being written passes
	hops    uint32            // how often packets of the chain that is being written have been forwarded
	crowds  map[string]*chain // those that count connections, by the name of their rule
	asked   *asked            // how the chain that is being written tests destinations, which NAT has translated; nil: in the packet
	tables  []*table
}

// table is what we have in a table.
type table struct {
	name   string
	names  nameSet // of chains
	chains []*chain
	head   string // the name of the chain of rules
	at     *chain // where the next rule goes
	rests  int    // chains for what follows a rule
}

// chain is one chain.
type chain struct {
	name  string
	lines []chainLine
}

// chainLine is a line of a chain: what follows -A and the chain's name, and what precedes them.
type chainLine struct{ count, text string }

func (t *table) chain(name string) *chain {
	c := &chain{name: t.names.take(name, maxChainName)}
	t.chains = append(t.chains, c)
	return c
}

func (c *chain) add(format string, args ...any) {
	c.lines = append(c.lines, chainLine{text: fmt.Sprintf(format, args...)})
}

// build makes the tables: in raw the checks and the rules that can be decided there, and what is not tracked; in filter
// the other rules; in mangle what SYNPROXY needs beside them.
func (f *familyBuilder) build() {
	if f.hasRaw() {
		t := f.table("raw", f.mainChain("RAW"))
		f.checks(t, plan.StageRaw)
		f.stage(t, plan.StageRaw)
	}
	f.untracked()
	if f.hasFilter() {
		t := f.table("filter", f.mainChain("FILTER"))
		f.checks(t, plan.StageFilter)
		f.translated(t)
		f.stage(t, plan.StageFilter)
		if f.forwardChain() != t.head {
			f.hops, t.head, t.rests = 1, f.forwardChain(), 0
			delete(t.names, t.head) // it was kept free
			t.at = t.chain(t.head)
			f.checks(t, plan.StageFilter)
			f.translated(t)
			f.stage(t, plan.StageFilter)
			f.hops = 0
		}
	}
	f.proxied()
}

// forwardChain is the chain for packets on their way through. It is one of its own when rules differ for them.
func (b *builder) forwardChain() string {
	for _, step := range b.pl.At(plan.StageFilter) {
		if plan.DiffersForwarded(b.pl, &b.pl.Program.Rules[step.Rule]) {
			return b.mainChain("FORWARD")
		}
	}
	return b.mainChain("FILTER")
}

// after is a rule as packets meet it that have been forwarded so often.
func after(hops uint32, r *ir.Rule) *ir.Rule {
	if hops == 0 || !plan.TestsTTL(r) {
		return r
	}
	out := *r
	out.Match = slices.Clone(r.Match)
	for i, m := range out.Match {
		if m.Field == packet.TTL {
			out.Match[i].Values = ranges.Decrease(m.Values, hops)
		}
	}
	return &out
}

// table begins a table with its chain of rules.
func (f *familyBuilder) table(name, chain string) *table {
	t := &table{name: name, names: nameSet{}, head: chain}
	for _, reserved := range []string{"RAW", "FILTER", "FORWARD", "PROXIED", "UNTRACK-IN", "UNTRACK-OUT"} {
		if other := f.mainChain(reserved); other != chain {
			t.names[other] = true
		}
	}
	t.at = t.chain(chain)
	f.tables = append(f.tables, t)
	return t
}

// stage adds the rules of a stage, and the default when it is there.
func (f *familyBuilder) stage(t *table, s plan.Stage) {
	p := f.pl.Program
	for _, step := range f.pl.At(s) {
		r := after(f.hops, f.pl.Of(step, s))
		if _, never := match.Impossible(*r); never {
			continue
		}
		mark := lineMark{comment: f.out.Rules[step.Rule], reason: r.Name}
		if step.Again {
			mark = lineMark{comment: mark.comment + " (again)"}
		}
		if step.Wait {
			mark.comment = fmt.Sprintf("%s (at %s)", r.Name, f.pl.Rules[step.Rule].Last())
		} else {
			f.protect(t, step.Rule, r, s)
		}
		f.rule(t, r, mark)
	}
	if f.pl.Default.At(s) {
		f.rule(t, &ir.Rule{Name: f.out.Default, Verdict: p.Default}, lineMark{f.out.Default, f.out.Default})
	}
}

// lineMark is the comment of a line, and the reason that the line counts, "" for none.
type lineMark struct{ comment, reason string }

// rule adds a rule to where the table's next one goes.
func (f *familyBuilder) rule(t *table, r *ir.Rule, mark lineMark) {
	f.passing = r.Verdict == ir.Pass && !r.Observe
	for _, c := range f.conditions(r) {
		c.any = slices.DeleteFunc(c.any, lineTests.never)
		f.condition(t, r, c, mark)
	}
}

// condition adds the lines of a condition. One with exceptions has a chain of its own, which the exceptions leave. From
// there a packet cannot leave two chains at once by RETURN, which is how a rule passes: so what passes is sent there by
// -g, and what goes on finds the rest of the rules in another chain.
func (f *familyBuilder) condition(t *table, r *ir.Rule, c condition, mark lineMark) {
	if match.Metered(r) {
		f.metered(t, r, c, mark)
		return
	}
	if f.texts(t, r, c, mark) {
		return
	}
	if len(c.not) == 0 {
		for _, a := range c.any {
			f.verdict(t.at, a, r.Verdict, mark)
		}
		return
	}
	own := t.chain(f.chainName(r.Name))
	call, leave, next := "-j", "-j RETURN", t.at
	if r.Verdict == ir.Pass {
		next = f.rest(t, r)
		call, leave = "-g", "-g "+next.name
	}
	for _, a := range c.any {
		t.at.add("%s%s %s", a, call, own.name)
	}
	if next != t.at {
		t.at.add("-g %s", next.name)
	}
	for _, a := range c.not {
		own.add("%s%s", a, leave)
	}
	f.verdict(own, lineTests{}, r.Verdict, mark)
	t.at = next
}

// rest makes the chain for what follows a rule that passes and has exceptions. The kernel lets chains lead to each
// other 16 deep (NFT_JUMP_STACK_SIZE), of which the built-in chain and the last that is called are two.
func (f *familyBuilder) rest(t *table, r *ir.Rule) *chain {
	const most = 12
	if t.rests++; t.rests > most {
		f.refuse(r, "not",
			fmt.Sprintf("it needs a chain for what follows it, like %d rules before it, and iptables-nft allows no more", most),
			"say what passes without `not` or `fragment`, put rules that drop in its place, or use --target nftables")
	}
	return t.chain(t.head)
}

// verdict adds a line that decides, two when the answer depends on the protocol.
func (f *familyBuilder) verdict(c *chain, a lineTests, v ir.Verdict, mark lineMark) {
	switch {
	case v == ir.Pass:
		f.line(c, a, "RETURN", mark)
		return
	case v == ir.Drop:
		f.line(c, a, "DROP", mark)
		return
	case a.proto == "tcp" || a.proto == "":
		f.line(c, a.and(lineTests{proto: "tcp"}), rejectTCP, mark)
	}
	if a.proto != "tcp" {
		f.line(c, a, rejectOther[f.family], mark)
	}
}

// The targets that answer.
const rejectTCP = "REJECT --reject-with tcp-reset"

var rejectOther = [2]string{
	packet.FamilyIPv4: "REJECT --reject-with icmp-port-unreachable",
	packet.FamilyIPv6: "REJECT --reject-with icmp6-port-unreachable",
}

// line adds a line that counts, with a target or "" for none.
func (f *familyBuilder) line(c *chain, a lineTests, target string, mark lineMark) {
	text := fmt.Sprintf("%s-m comment --comment %s", a, commentText(mark.comment))
	if target != "" {
		text += " -j " + target
	}
	c.lines = append(c.lines, chainLine{f.counted(mark), text})
}

// counted is the count with which a line begins, when there is one to go on from: in the reason's first line.
func (b *builder) counted(mark lineMark) string {
	if b.o.Counts == nil || mark.reason == "" || b.begun[mark.comment] {
		return ""
	}
	b.begun[mark.comment] = true
	packets, octets := b.o.Counts(mark.reason)
	return fmt.Sprintf("[%d:%d] ", packets, octets)
}

// commentText is a comment as iptables-save writes it, in quotes unless it is plain.
func commentText(s string) string {
	const plain = "_-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if strings.Trim(s, plain) != "" {
		return `"` + s + `"`
	}
	return s
}

// restore is the input of iptables-restore or ip6tables-restore, with the rules of hooks in the built-in chains.
func (f *familyBuilder) restore(hooks []Hook) string {
	var b strings.Builder
	for _, t := range f.tables {
		fmt.Fprintf(&b, "*%s\n", t.name)
		for _, c := range t.chains {
			fmt.Fprintf(&b, ":%s - [0:0]\n", c.name)
		}
		for _, c := range t.chains {
			for _, line := range c.lines {
				fmt.Fprintf(&b, "%s-A %s %s\n", line.count, c.name, line.text)
			}
		}
		number := map[string]int{}
		for _, h := range hooks {
			if h.Table == t.name {
				number[h.Chain]++
				fmt.Fprintf(&b, "-I %s %d %s\n", h.Chain, number[h.Chain], h)
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// Script is all of it in one file for people, hooks included: three parts, each headed by the tool that takes it.
func (x *Ruleset) Script() string {
	parts := []struct{ head, text string }{
		{"ipset restore", x.IPSet},
		{"iptables-restore --noflush", x.families[0].restore(x.Hooks)},
		{"ip6tables-restore --noflush", x.families[1].restore(x.Hooks)},
	}
	var b strings.Builder
	for _, p := range parts {
		if p.text != "" {
			fmt.Fprintf(&b, "# for: %s\n%s", p.head, p.text)
		}
	}
	return b.String()
}
