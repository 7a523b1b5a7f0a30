// SPDX-License-Identifier: Apache-2.0

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

// familyBuilder is the state of Generate for one family: iptables or ip6tables.
type familyBuilder struct {
	*builder
	family  uint32
	passing bool              // the current rule passes
	hops    uint32            // how often packets of the current chain have already been forwarded
	crowds  map[string]*chain // chains that count connections, by the name of their rule
	asked   *asked            // how the current chain tests destinations that NAT has translated; nil: it reads the packet's own destination
	tables  []*table
}

// table holds Floodwall's chains in one table of iptables.
type table struct {
	name   string
	names  nameSet // of chains
	chains []*chain
	head   string // the name of the chain of rules
	at     *chain // the chain to which the next rule is added
	rests  int    // the number of chains for rules that follow a rule with exceptions (rest)
}

// chain is one chain.
type chain struct {
	name  string
	lines []chainLine
}

// chainLine is a line of a chain. The complete line is count, -A and the chain's name, and then text.
type chainLine struct{ count, text string }

func (t *table) chain(name string) *chain {
	c := &chain{name: t.names.take(name, maxChainName)}
	t.chains = append(t.chains, c)
	return c
}

func (c *chain) add(format string, args ...any) {
	c.lines = append(c.lines, chainLine{text: fmt.Sprintf(format, args...)})
}

// build makes the tables. raw has the checks, the rules that can run there, and the exemptions from conntrack. filter
// has the other rules. mangle has the lines that SYNPROXY needs in addition.
func (f *familyBuilder) build() {
	if f.hasRaw() {
		t := f.table("raw", f.mainChain("RAW"))
		f.checks(t, plan.StageRaw)
		f.stage(t, plan.StageRaw)
	}
	f.untracked()
	f.forged()
	if f.hasFilter() {
		t := f.table("filter", f.mainChain("FILTER"))
		f.checks(t, plan.StageFilter)
		f.translated(t)
		f.stage(t, plan.StageFilter)
		if f.forwardChain() != t.head {
			f.hops, t.head, t.rests = 1, f.forwardChain(), 0
			delete(t.names, t.head) // table() has reserved the name, but the chain is renamed
			t.at = t.chain(t.head)
			f.checks(t, plan.StageFilter)
			f.translated(t)
			f.stage(t, plan.StageFilter)
			f.hops = 0
		}
	}
	f.proxied()
}

// forwardChain returns the name of the chain for forwarded packets. It differs from the chain for packets to this host if any rule differs for the
// two.
func (b *builder) forwardChain() string {
	for _, step := range b.pl.At(plan.StageFilter) {
		if plan.DiffersForwarded(b.pl, &b.pl.Program.Rules[step.Rule]) {
			return b.mainChain("FORWARD")
		}
	}
	return b.mainChain("FILTER")
}

// after adapts a rule to packets that have been forwarded hops times, which lowers their TTL.
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

// table creates a table with its chain of rules.
func (f *familyBuilder) table(name, chain string) *table {
	t := &table{name: name, names: nameSet{}, head: chain}
	for _, reserved := range []string{"RAW", "FILTER", "FORWARD", "PROXIED", "FORGED", "UNTRACK-IN", "UNTRACK-OUT"} {
		if other := f.mainChain(reserved); other != chain {
			t.names[other] = true
		}
	}
	t.at = t.chain(chain)
	f.tables = append(f.tables, t)
	return t
}

// stage adds the rules of a stage, and the default if the stage decides it.
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

// lineMark has the comment of a line, and the reason to which the line's count belongs. "" means none.
type lineMark struct{ comment, reason string }

// rule adds a rule at the table's current position.
func (f *familyBuilder) rule(t *table, r *ir.Rule, mark lineMark) {
	f.passing = r.Verdict == ir.Pass && !r.Observe
	for _, c := range f.conditions(r) {
		c.any = slices.DeleteFunc(c.any, lineTests.never)
		f.condition(t, r, c, mark)
	}
}

// condition adds the lines of a condition. A condition with exceptions has a chain of its own, which packets leave at an exception. A rule passes
// packets by RETURN, but RETURN leaves only one chain. So if a rule passes, -g leads to its chain, and the remaining rules are in another chain,
// where packets that match an exception continue.
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

// rest creates the chain for the rules that follow a rule that passes and has exceptions. The kernel allows 16 nested chains (NFT_JUMP_STACK_SIZE).
// The built-in chain and the innermost chain are two of these.
func (f *familyBuilder) rest(t *table, r *ir.Rule) *chain {
	const most = 12
	if t.rests++; t.rests > most {
		f.refuse(r, "not",
			fmt.Sprintf("it needs a chain for what follows it, like %d rules before it, and iptables-nft allows no more", most),
			"say what passes without `not` or `fragment`, put rules that drop in its place, or use --target nftables")
	}
	return t.chain(t.head)
}

// verdict adds a line with a verdict, or two lines if the answer depends on the protocol.
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

// rejectTCP is the target for TCP packets that are rejected.
const rejectTCP = "REJECT --reject-with tcp-reset"

var rejectOther = [2]string{
	packet.FamilyIPv4: "REJECT --reject-with icmp-port-unreachable",
	packet.FamilyIPv6: "REJECT --reject-with icmp6-port-unreachable",
}

// line adds a line that counts packets. target is the target of the line, "" for none.
func (f *familyBuilder) line(c *chain, a lineTests, target string, mark lineMark) {
	text := fmt.Sprintf("%s-m comment --comment %s", a, commentText(mark.comment))
	if target != "" {
		text += " -j " + target
	}
	c.lines = append(c.lines, chainLine{f.counted(mark), text})
}

// counted returns the initial count of a line. It is the earlier count of the line's reason, if this is the first line of the reason.
func (b *builder) counted(mark lineMark) string {
	if b.o.Counts == nil || mark.reason == "" || b.begun[mark.comment] {
		return ""
	}
	b.begun[mark.comment] = true
	packets, octets := b.o.Counts(mark.reason)
	return fmt.Sprintf("[%d:%d] ", packets, octets)
}

// commentText returns a comment in the form of iptables-save: in quotes, unless it has only plain characters.
func commentText(s string) string {
	const plain = "_-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if strings.Trim(s, plain) != "" {
		return `"` + s + `"`
	}
	return s
}

// restore returns the input of iptables-restore or ip6tables-restore, with the rules of hooks in the built-in chains.
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

// Script returns the complete ruleset, including hooks, as one readable file. It has three parts. Each has a heading with the tool that reads it.
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
