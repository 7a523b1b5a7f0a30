// SPDX-License-Identifier: Apache-2.0

// This file is the experiment `cost`. It measures the cost of a packet by the work that a firewall does with the packet. It follows an article of
// 2016.

package experiment

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/lab"
)

// costCase is a line of the article's table.
type costCase struct {
	name, label string
	own         string // label of Floodwall's row; "": the same
	kpps        float64
	cost        string // the cost in the article's words; without kpps, the article has no such line
	guard       rig.Guard
	accept      bool // the packets are accepted
	some        bool // some packets are accepted, others are dropped

	policy string            // Floodwall's policy, without devices; "": Floodwall cannot do this
	lacks  string            // the reason why there is no policy
	cannot map[string]string // by target, the reason why Floodwall cannot do this there
	least  float64           // the share of the limit that Floodwall must reach on XDP; 0: no goal
	times  float64           // the multiple of rivalCase's rate that Floodwall must reach on XDP; 0: no goal
}

// The cases with which others are compared: baseCase for costs, and rivalCase for searches in packets.
const (
	baseCase  = "raw"
	rivalCase = "string/bm"
)

const (
	dropRule   = "-p udp --dport 53 -j DROP\n"
	dropPolicy = "  - {name: flood, proto: udp, port: 53, then: drop}\n"
	passPolicy = "default: pass\nchecks: off\n"
)

// costCases returns the lines of the article's table in its order, and cases with more than one string. The function list writes a list to a file.
func costCases(list func(*rig.List) (string, error)) ([]costCase, error) {
	const stateful = "*filter\n-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\nCOMMIT\n"
	iptables := func(text string) rig.Guard { return rig.Guard{Iptables: text} }
	raw := func(rules string) rig.Guard { return iptables(rig.RawRules(rules + "-A PREROUTING " + dropRule)) }
	all := []costCase{
		{
			name: "accept/untracked", label: "accept, conntrack off", kpps: 106, accept: true, guard: iptables(rig.RawRules("-A PREROUTING -j CT --notrack\n") + stateful),
			policy: passPolicy + "services: [{name: sink, port: udp/53, track: false}]\n",
		},
		{
			name: "accept/tracked", label: "accept, conntrack on", kpps: 87, cost: "20%", accept: true, guard: iptables(stateful),
			policy: passPolicy + "services: [{name: sink, port: udp/53, track: true}]\n",
		},
		{
			name: baseCase, label: "drop, first rule in raw", own: "drop, first rule", kpps: 280, cost: "baseline", guard: raw(""),
			policy: passPolicy + "rules:\n" + dropPolicy,
		},
		{
			name: "filter", label: "drop, first rule in filter", kpps: 250, cost: "12%", guard: iptables("*filter\n-A INPUT " + dropRule + "COMMIT\n"),
			policy: passPolicy + "placement: filter\nrules:\n" + dropPolicy,
		},
		{
			name: "raw/rules=5", label: "drop, after 5 rules that do not match", kpps: 250, cost: "12%", guard: raw(rig.IptablesRules("PREROUTING", 5)),
			policy: passPolicy + rig.PolicyRules(5) + dropPolicy,
		},
	}
	for _, n := range []int{1, 65_000, 265_000} {
		l := rig.RandomHosts(n - 1)
		l.Prefixes = append(l.Prefixes, netip.PrefixFrom(flowSource, 32))
		file, err := list(l)
		if err != nil {
			return nil, err
		}
		all = append(all, costCase{
			name: fmt.Sprintf("set/n=%d", n), label: fmt.Sprintf("drop, set of %s", report.Things(n, "address", "addresses")), kpps: 255, cost: "10%",
			guard:  rig.Guard{Ipset: l, Iptables: rig.RawRules("-A PREROUTING " + rig.MatchListed + " -j DROP\n")},
			policy: passPolicy + "sets: {listed: {file: " + strconv.Quote(file) + "}}\nrules: [{name: listed, from: $listed, then: drop}]\n",
		})
	}
	searched := func(algo string, n int) rig.Guard { return raw(rig.StringRules(algo, rig.Texts(n))) }
	searching := func(n int) string { return passPolicy + "rules:\n" + rig.StringPolicy(rig.Texts(n)) + dropPolicy }
	noSearch := map[string]string{"nftables": "nft has no match for text anywhere"}
	return append(all,
		costCase{
			name: rivalCase, label: "drop, after a string match (bm)", own: "drop, after a string match", kpps: 255, cost: "10%", guard: searched("bm", 1),
			policy: searching(1), cannot: noSearch, times: rig.LeastString,
		},
		costCase{
			name: "string/kmp", label: "drop, after a string match (kmp)", kpps: 235, cost: "17%", guard: searched("kmp", 1),
			lacks: "it has one way to search: see string match (bm)",
		},
		costCase{
			name: "string/n=64", label: "drop, after 64 string matches", guard: searched("bm", rig.MostStrings),
			policy: searching(rig.MostStrings), cannot: noSearch, times: rig.LeastStrings,
		},
		costCase{
			name: "hashlimit", label: "hashlimit, 1000/s per /16", own: "over 1000/s per /16", kpps: 225, cost: "20%", some: true,
			guard: raw("-A PREROUTING -p udp -m hashlimit --hashlimit-upto 1000/sec --hashlimit-burst 1000 --hashlimit-mode srcip" +
				" --hashlimit-srcmask 16 --hashlimit-name bench -j ACCEPT\n"),
			policy: passPolicy + "rules: [{name: limit, proto: udp, over: {rate: 1000/s, per: from/16}, then: drop}]\n", least: rig.LeastLimit,
		}), nil
}

// runPacketCost measures the cost of one packet for each case of an article of 2016. It measures the article's tool, Floodwall on each target, and
// the minimum possible work.
func runPacketCost(ctx context.Context, s *rig.Session) error {
	return rig.With(ctx, s, func(b *rig.Builder) error {
		b.Flow = flow
		b.Table.Title = "cost: 128-byte UDP packets from one address and port to another"
		b.Table.Notes = slices.Clone(packetcostNotes)
		if err := addCosts(ctx, b); err != nil {
			return err
		}
		two, one := &b.Table, b.Table.On(rig.OneCore)
		if err := two.Measure(ctx, s); err != nil {
			return err
		}
		one.Untold = func() []*rig.Row { return untold(one) }
		if err := one.Measure(ctx, s); err != nil {
			return err
		}
		s.Outcome.Claims = outcome(one)
		return nil
	})
}

// packetcostNotes describe the choices that the article leaves open.
var packetcostNotes = []string{
	"Article: Strongarm 2016, one core of a small EC2 instance, Linux 4.4. Its tool is iptables: here, iptables-legacy.",
	"A packet of 128 bytes is one whose IP header says so: a frame of 142. Accepted packets go to a socket that nobody",
	"reads, where they are discarded once its buffer is full. The rule that drops is for UDP to port 53. The source is in",
	"the sets; the strings are not in the packets, which the next rule drops; hashlimit accepts 1000/s of each /16 and the",
	"next rule drops the rest, with bursts of what the rate gives in a second. Floodwall's policies have checks: off, as",
	"iptables has none, and it chooses the stages.",
	"64 strings, which the article has not, are 64 rules of iptables (bm) and one of Floodwall. The bars are for XDP: of",
	"what the empty program takes, and how many times (x) the rate of iptables with one string (bm).",
	"Cost: time per packet above that of iptables' drop in raw. For accepting with conntrack, the article's 20% is above",
	"accepting without.",
}

// The flow of the article. All packets are from one address and port to another.
var (
	flowSource = netip.MustParseAddr("10.0.0.1")
	flow       = lab.Flow{
		From: lab.Addr(flowSource), To: lab.Addr(rig.Server4), SPort: lab.Port(4000), DPort: lab.Port(rig.SinkPort), Size: 14 + 128,
	}
)

// targets are the targets of a policy.
var targets = []string{"xdp", "nftables", "iptables"}

// addCosts adds the rows of the limits and of all cases.
func addCosts(ctx context.Context, b *rig.Builder) error {
	if err := b.Limits(); err != nil {
		return err
	}
	pass, err := rig.LoadInstructions("pass", asm.Mov.Imm(asm.R0, rig.XDPPass), asm.Return())
	if err != nil {
		return err
	}
	limit, err := newSinkSite(b)
	if err != nil {
		return err
	}
	open, err := newSinkSite(b)
	if err != nil {
		return err
	}
	b.Add(&rig.Row{
		Name: "pass", Label: "empty XDP_PASS, no firewall (the limit of accepting)", Subject: rig.Subject{Site: limit.Site, Program: b.Own(pass)},
	})
	b.Add(&rig.Row{Name: "accept", Label: "accept, no firewall", Subject: rig.Subject{Site: open.Site}})
	cases, err := costCases(func(l *rig.List) (string, error) {
		file, remove, err := rig.TempFile("list.txt", l.Write)
		if err == nil {
			b.Owned = append(b.Owned, func() error { remove(); return nil })
		}
		return file, err
	})
	if err != nil {
		return err
	}
	for _, c := range cases {
		if err := addCost(ctx, b, c); err != nil {
			return fmt.Errorf("%s: %w", c.label, err)
		}
	}
	return nil
}

// addCost adds the rows of a case: one with iptables, and one with Floodwall on each target.
func addCost(ctx context.Context, b *rig.Builder, c costCase) error {
	row := &rig.Row{Name: "iptables/" + c.name, Label: "iptables: " + c.label}
	if c.kpps > 0 {
		row.Article = []string{fmt.Sprintf("%.0f", c.kpps), c.cost}
	}
	switch c.name {
	case baseCase:
		b.Table.Base, b.Table.By = row, "x-raw-drop"
	case rivalCase:
		b.Table.Rival = row
	}
	if err := addSink(ctx, b, row, c, c.guard); err != nil {
		return err
	}
	label := cmp.Or(c.own, c.label)
	if c.policy == "" {
		b.Add(&rig.Row{Name: "floodwall/" + c.name, Label: "floodwall: " + label, Missing: c.lacks})
		return nil
	}
	for _, target := range targets {
		row := &rig.Row{Name: "floodwall/" + target + "/" + c.name, Label: "floodwall, " + target + ": " + label, Missing: c.cannot[target]}
		if target == "xdp" {
			row.Goals = append(rig.OfLeast(c.least), rig.XRival("iptables/"+rivalCase, c.times)...)
		}
		if err := addSink(ctx, b, row, c, rig.Floodwall(target, c.policy)); err != nil {
			return fmt.Errorf("floodwall, %s: %w", target, err)
		}
	}
	return nil
}

// addSink adds a row for a guard at a site with a socket. Before that, it tests that packets arrive at the socket, or that they do not, as the case
// says. If a policy drops on XDP, only its program is measured.
func addSink(ctx context.Context, b *rig.Builder, row *rig.Row, c costCase, g rig.Guard) error {
	switch {
	case !b.Wants(row.Name) && row != b.Table.Base && row != b.Table.Rival:
		return nil
	case row.Missing != "":
		b.Add(row)
		return nil
	case g.Options.Target == plan.TargetXDP && !c.accept:
		return b.AddGuarded(ctx, row, g, nil)
	}
	at, err := newSinkSite(b)
	if err != nil {
		return err
	}
	if row.Missing, err = b.SetUp(row.Label, func() error { return b.Guard(ctx, at.Site, g) }); err != nil {
		return err
	}
	b.Add(row)
	row.Subject = rig.Subject{Site: at.Site}
	if row.Missing != "" || c.some {
		return nil
	}
	return at.expect(ctx, flow, c.accept)
}

// packetcostClaim is a statement of the article. It also holds here if a ratio is between two bounds. The ratio is the time per packet of one row
// divided by that of another row.
type packetcostClaim struct {
	text        string
	article     float64
	rows, bases []string // the slowest of rows is compared with the fastest of bases
	least, most float64
	rule        string
}

// packetcostArticleClaims are the article's four claims, and the costs of the kinds of rules in its table. The article's own figures are rates, such
// as 280 kpps for dropping in raw.
var packetcostArticleClaims = []packetcostClaim{
	{
		"raw is only a little better than filter", 280.0 / 250, []string{"iptables/filter"}, []string{"iptables/" + baseCase},
		1, 1.25, "filter costs up to 25% more than raw",
	},
	{
		"position matters a little", 280.0 / 250, []string{"iptables/raw/rules=5"}, []string{"iptables/" + baseCase},
		1.02, 1.25, "5 rules before it cost 2% to 25% more",
	},
	{
		"set size does not matter", 1, setRows, setRows,
		0, 1.10, "the dearest of the three sizes costs at most 10% more than the cheapest",
	},
	{
		"dropping costs 2.5 times less than accepting", 280.0 / 106, []string{"iptables/accept/untracked"}, []string{"iptables/" + baseCase},
		2, 3.5, "accepting without conntrack costs 2 to 3.5 times what dropping in raw does",
	},
	addition("conntrack adds 20% to accepting", 106.0/87, "accept/tracked", "accept/untracked"),
	addition("an ipset adds 10% to dropping", 280.0/255, "set/n=1", baseCase),
	addition("a string match (bm) adds 10%", 280.0/255, "string/bm", baseCase),
	addition("a string match (kmp) adds 17%", 280.0/235, "string/kmp", baseCase),
	addition("hashlimit adds 20%", 280.0/225, "hashlimit", baseCase),
}

// addition returns a claim about the additional cost of one iptables case over another. The article's statement holds if this cost is above 0 and
// below three times the article's cost.
func addition(text string, article float64, row, base string) packetcostClaim {
	most := 1 + 3*(article-1)
	return packetcostClaim{
		text, article, []string{"iptables/" + row}, []string{"iptables/" + base}, 1.01, most,
		fmt.Sprintf("it costs 1%% to %.0f%% more, up to three times what the article has", 100*(most-1)),
	}
}

var setRows = []string{"iptables/set/n=1", "iptables/set/n=65000", "iptables/set/n=265000"}

// outcome judges the claims with the measurement on one core. The article also used one core. It compares the receive thread's own time per packet.
func outcome(t *rig.RateTable) (claims []report.Claim) {
	for _, c := range packetcostArticleClaims {
		judged := report.OpenClaim(c.text, report.TimesText(c.article), c.rule+", in time per packet with source and receiver on one core")
		if times := c.times(t); len(times) > 0 {
			judged = judged.Within(report.WithInterval(times), times, c.least, c.most, c.unsteady(t))
		}
		claims = append(claims, judged)
	}
	return claims
}

// untold returns the rows of those claims that cannot be decided yet with the measured figures.
func untold(t *rig.RateTable) (rows []*rig.Row) {
	var names []string
	for _, c := range packetcostArticleClaims {
		if times := c.times(t); len(times) > 0 && !report.Told(times, c.least, c.most) {
			names = append(append(names, c.rows...), c.bases...)
		}
	}
	for _, r := range t.Rows {
		if slices.Contains(names, r.Name) {
			rows = append(rows, r)
		}
	}
	return rows
}

// times returns the time per packet of the slowest row divided by that of the fastest base, round by round. It returns nil if one of them was not
// measured.
func (c packetcostClaim) times(t *rig.RateTable) report.Samples {
	row, base := extreme(t, c.rows, 1), extreme(t, c.bases, -1)
	if row == nil {
		return nil
	}
	return row.By(base, "ns/op")
}

func (c packetcostClaim) unsteady(t *rig.RateTable) bool {
	return slices.ContainsFunc(slices.Concat(c.rows, c.bases), func(name string) bool { r := t.Find(name); return r != nil && r.Doubtful() })
}

// extreme returns the named row with the longest time per packet if sign is 1, or with the shortest if sign is -1. It returns nil if one of the rows
// was not measured.
func extreme(t *rig.RateTable, names []string, sign float64) (found *rig.Row) {
	for _, name := range names {
		r := t.Find(name)
		if r == nil || !r.Measured() {
			return nil
		}
		if found == nil || sign*r.Figure("ns/op").Median() > sign*found.Figure("ns/op").Median() {
			found = r
		}
	}
	return found
}
