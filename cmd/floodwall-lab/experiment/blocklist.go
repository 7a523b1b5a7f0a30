// SPDX-License-Identifier: Apache-2.0

// This file is the experiment blocklist: a web server that blocks a list of addresses. It follows an article of 2012.

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// runBlocklist measures how blocked addresses slow down the visitors of a web server. No packet comes from a blocked address. An article measured
// this in 2012.
func runBlocklist(ctx context.Context, s *rig.Session) error {
	lists, err := makeLists(s)
	if err != nil {
		return err
	}
	return rig.With(ctx, s, func(in *rig.Builder) error {
		b := &blocklist{Builder: in, blockers: blockers()}
		for _, c := range b.blockers {
			b.Steps.Show("starting the server of %s", c.label)
			if c.site, err = newSite(ctx, b.Builder); err != nil {
				return fmt.Errorf("%s: %w", c.label, err)
			}
		}
		defer b.publish() // all figures so far, also when the rest cannot be measured
		return b.measure(ctx, lists)
	})
}

// leastRounds is the minimum number of rounds for the list that is judged. One or two rounds do not show the noise.
const leastRounds = 5

// blocklist is the experiment.
type blocklist struct {
	*rig.Builder
	blockers []*blocker
	points   []*listPoint
}

// listPoint has the results for a list, with a row for each blocker.
type listPoint struct {
	name, label string
	entries     int
	rows        []*rig.Row
	loaded      []rig.Loaded
	shares      [][][2]float64 // for each row, the distribution of the times of requests: percent, and the milliseconds within which that share came
}

// requests returns the number of requests in a round. It is the article's number, or less if phases are too short.
func (b *blocklist) requests() int {
	return max(1, int(min(articleRequests, articleRequests*b.Phase/(3*time.Second))))
}

// measure measures all lists, from the shortest to the longest.
func (b *blocklist) measure(ctx context.Context, lists []func() *rig.List) error {
	for i, prepare := range lists {
		b.Steps.Show("making addresses")
		l := prepare()
		if err := b.point(ctx, l, b.rounds(len(l.Prefixes), i == len(lists)-1)); err != nil {
			return err
		}
	}
	return nil
}

// rounds returns the number of rounds for a list with the given number of entries. The last list is judged, so it gets at least leastRounds. A list
// without a column in the tables gets one round.
func (b *blocklist) rounds(entries int, last bool) int {
	switch {
	case last:
		return max(b.Rounds, leastRounds)
	case b.Sizes == nil && b.List == "" && !(&listPoint{entries: entries}).column():
		return 1
	}
	return b.Rounds
}

// point makes all blockers block a list, and measures the blockers in turn.
func (b *blocklist) point(ctx context.Context, l *rig.List, rounds int) (err error) {
	p := newPoint(l.Name, l.Label, len(l.Prefixes), b.blockers)
	b.points = append(b.points, p)
	defer func() {
		for _, blocks := range p.loaded {
			if blocks.Remove != nil {
				err = errors.Join(err, blocks.Remove())
			}
		}
	}()
	whole := make([]lab.Times, len(b.blockers))
	for i, c := range b.blockers {
		p.rows[i].Setup = &rig.Setup{Label: c.label + " with " + l.Label, Do: func(ctx context.Context) (err error) {
			p.loaded[i], err = b.block(ctx, c, l)
			p.rows[i].Extra = p.loaded[i].Metrics()
			return err
		}}
		p.rows[i].Take = func(ctx context.Context, _ int) (rig.Reading, error) {
			s, err := lab.Serial(ctx, c.serial(l, b.requests()))
			if err != nil {
				return nil, err
			}
			whole[i].Add(s.Whole)
			return blocklistReading(s), nil
		}
	}
	t, s := &rig.Table{Doing: l.Label + ", ", Rows: slices.Clone(p.rows)}, *b.Session
	s.Rows, s.Rounds = nil, rounds
	if err := s.SetUpRows(ctx, t); err != nil {
		return err
	}
	debug.FreeOSMemory() // otherwise the garbage collector would run for the garbage of loading on the clients' CPU
	if err := s.TakeAll(ctx, t); err != nil {
		return err
	}
	for i := range whole {
		p.shares[i] = distribution(&whole[i])
	}
	return nil
}

// newPoint returns a listPoint without results.
func newPoint(name, label string, entries int, blockers []*blocker) *listPoint {
	p := &listPoint{name: name, label: label, entries: entries, loaded: make([]rig.Loaded, len(blockers)), shares: make([][][2]float64, len(blockers))}
	for _, c := range blockers {
		p.rows = append(p.rows, &rig.Row{Name: name + "/" + c.name, Label: c.label, Kind: c.name, Load: name, Line: c.name})
	}
	return p
}

// row returns the row of a blocker.
func (p *listPoint) row(blocker string) *rig.Row {
	return p.rows[slices.IndexFunc(p.rows, func(r *rig.Row) bool { return r.Kind == blocker })]
}

// block makes a blocker block a list, and checks that the list is blocked.
func (b *blocklist) block(ctx context.Context, c *blocker, l *rig.List) (blocks rig.Loaded, err error) {
	n := len(l.Prefixes)
	switch {
	case c.load == nil:
	case c.most > 0 && n > c.most:
		return blocks, &rig.Missing{Reason: fmt.Sprintf("measured with up to %s", report.CountText(c.most))}
	case c.slow && n >= rig.SlowSize && !b.All:
		return blocks, &rig.Missing{Reason: "takes minutes: measured with --all"}
	default:
		if blocks, err = c.load(ctx, c.site, l); err != nil {
			return blocks, err
		}
	}
	return blocks, c.probe(ctx, l)
}

// phaseUnit returns the unit of a figure for a phase of requests.
func phaseUnit(phase, figure string) string {
	return strings.ReplaceAll(phase, " ", "-") + "-" + figure
}

// blocklistReading returns the figures of a round of requests.
func blocklistReading(s *lab.SerialSummary) rig.Reading {
	whole := s.Whole.Latency()
	read := rig.Reading{"req/s": 1e9 / float64(whole.Mean), "mean-ns": float64(whole.Mean), "p50-ns": float64(whole.P50), "p99-ns": float64(whole.P99), "p999-ns": float64(whole.P999)}
	for i, times := range s.Phases {
		of := times.Latency()
		for figure, t := range map[string]time.Duration{"p50-ns": of.P50, "p99-ns": of.P99, "p999-ns": of.P999} {
			read[phaseUnit(lab.SerialPhases[i], figure)] = float64(t)
		}
	}
	return read
}

// distribution returns the distribution of times. Each element has a percentage of the requests, and the time in milliseconds in which they were
// answered.
func distribution(whole *lab.Times) (shares [][2]float64) {
	if whole.Count() == 0 {
		return nil
	}
	for _, percent := range []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5, 99.9} {
		shares = append(shares, [2]float64{percent, whole.Quantile(percent).Seconds() * 1e3})
	}
	return shares
}

// The article's numbers of entries, from 0 to publishedMost in steps of publishedStep.
const (
	publishedMost = 50_000
	publishedStep = 1_000
)

// publishedColumns are the numbers of entries in the article's table.
var publishedColumns = []int{0, 1_000, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 35_000, 40_000, 45_000, 50_000}

// makeLists returns functions that make the lists, from the empty list to the longest. Each function is called when its list is measured.
func makeLists(s *rig.Session) (all []func() *rig.List, err error) {
	if s.List != "" {
		l, err := rig.ReadList(s.List)
		if err != nil {
			return nil, err
		}
		if err := l.Spare(); err != nil {
			return nil, fmt.Errorf("list %s: %w", s.List, err)
		}
		none := &rig.List{Name: "n=0", Label: "no entries", Hosts: l.Hosts, V6: l.V6}
		return append(all, func() *rig.List { return none }, func() *rig.List { return l }), nil
	}
	for _, n := range listSizes(s) {
		all = append(all, func() *rig.List { return rig.RandomHosts(n) })
	}
	return all, nil
}

// listSizes returns the sizes of the random lists.
func listSizes(s *rig.Session) (sizes []int) {
	switch {
	case s.Sizes != nil:
		sizes = append([]int{0}, s.Sizes...)
		slices.Sort(sizes)
		return slices.Compact(sizes)
	case s.Quick:
		return []int{0, 1_000, fewRules, 10_000, publishedMost / 2, publishedMost, 10_000_000}
	}
	for n := 0; n <= publishedMost; n += publishedStep {
		sizes = append(sizes, n)
	}
	return append(sizes, 100_000, 1_000_000, 10_000_000)
}

// The article's request, and the number of requests in the article.
const (
	pageFile        = "page"
	pageSize        = 10 << 10
	articleRequests = 1000
	warmup          = 50 // requests before the measured ones, which bring data back into the caches
)

// newSite builds another site. Its server ends with the builder. The server's routes to all other addresses lead to the clients' link.
func newSite(ctx context.Context, b *rig.Builder) (*rig.Site, error) {
	at, err := b.Connect(rig.OtherEnd, rig.ServerEnd)
	if err != nil {
		return nil, err
	}
	for _, part := range []string{"0.0.0.0/1", "128.0.0.0/1", "2000::/3"} {
		to := netip.MustParsePrefix(part)
		via := at.Out.Addrs[report.Choice(to.Addr().Is6(), 1, 0)].Addr()
		if err := at.Server.Route(to, via, at.In); err != nil {
			return nil, err
		}
	}
	where := rig.Place{CPU: rig.ReceiverCPU, Priority: lab.Urgent}
	n, err := rig.StartStaticNginx(ctx, at.Server, where, serverAt(false), serverAt(true), pageFile, make([]byte, pageSize))
	if err != nil {
		return nil, err
	}
	b.Owned = append(b.Owned, n.Close)
	return at, nil
}

// serverAt returns the server's address and port.
func serverAt(v6 bool) netip.AddrPort {
	return netip.AddrPortFrom(report.Choice(v6, rig.Server6, rig.Server4), 80)
}

// probeTime is the time for which a client waits for an answer that must not arrive.
const probeTime = 50 * time.Millisecond

// probe sends a request from a listed address. Without a firewall the request must be answered. With a firewall it must not.
func (c *blocker) probe(ctx context.Context, l *rig.List) error {
	listed, ok := l.Visitor()
	if !ok {
		return nil
	}
	o := c.serial(l, 1)
	o.From, o.Warmup = listed, 0
	if c.load != nil {
		o.Timeout = probeTime
	}
	if err := o.Host.Own(netip.PrefixFrom(listed, listed.BitLen())); err != nil {
		return err
	}
	switch _, err := lab.Serial(ctx, o); {
	case c.load == nil:
		return err
	case err == nil:
		return fmt.Errorf("%s is listed and gets an answer", listed)
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s is listed: %w", listed, err)
	}
	return nil
}

// serial returns the options for the clients' requests.
func (c *blocker) serial(l *rig.List, requests int) lab.SerialOptions {
	return lab.SerialOptions{
		Host: c.site.Out.Host, Server: serverAt(l.V6), Request: lab.Request{Target: "/" + pageFile}, Body: pageSize,
		Requests: requests, Warmup: warmup, CPU: rig.SourceCPU, Urgent: true,
	}
}

// blocker is a way to block addresses.
type blocker struct {
	name, label string
	article     []float64 // milliseconds of a request in the article, by publishedColumns; nil: not in the article
	most        int       // the largest number of entries that is measured; 0: no bound
	slow        bool      // it takes minutes to load 10 million addresses

	// load blocks a list at a site. If load is nil, nothing is blocked.
	load func(context.Context, *rig.Site, *rig.List) (rig.Loaded, error)

	site *rig.Site // of its own
}

// Names of rows with which other rows are compared.
const (
	noFirewall   = "no-firewall"
	noneAgain    = "no-firewall/again"
	rulesBlocker = "iptables"
	ipsetBlocker = "ipset"
	ourBlocker   = "floodwall"
)

// blockers returns the rows. The first and the last row have no firewall, because the others are compared with them.
func blockers() []*blocker {
	return []*blocker{
		{name: noFirewall, label: "no firewall"},
		{
			name: rulesBlocker, label: "iptables: a rule each", most: publishedMost, load: blockByRules,
			article: []float64{0.76, 0.98, 1.77, 4.28, 4.00, 9.85, 8.04, 8.75, 15.05, 10.44, 10.89, 12.06},
		},
		{
			name: ipsetBlocker, label: "iptables: one ipset", slow: true, load: blockByIpset,
			article: []float64{0.63, 0.57, 0.93, 0.58, 0.61, 0.65, 0.84, 0.91, 1.29, 0.54, 0.95, 1.28},
		},
		{name: "nft", label: "nft: one set", slow: true, load: blockByNft},
		{name: ourBlocker, label: "floodwall", load: blockByFloodwall},
		{name: noneAgain, label: "no firewall, again"},
	}
}

// leastRulesToWeigh is the minimum number of rules whose memory can be measured. The memory of fewer rules is hidden by other changes of the
// machine's memory.
const leastRulesToWeigh = 25_000

// blockByRules makes iptables drop packets from each entry by a separate rule.
func blockByRules(ctx context.Context, at *rig.Site, l *rig.List) (g rig.Loaded, err error) {
	var rules strings.Builder
	rules.WriteString("*filter\n")
	var line []byte
	for _, p := range l.Prefixes {
		line = append(l.AppendEntry(append(line[:0], "-A INPUT -s "...), p), " -j DROP\n"...)
		rules.Write(line)
	}
	rules.WriteString("COMMIT\n")
	before := rig.KernelMemory()
	took, err := rig.RestoreRules(ctx, at, l.V6, rules.String())
	if err != nil {
		return g, err
	}
	g = rig.Loaded{Seconds: report.Samples{took.Seconds()}}.Weighed(before, len(l.Prefixes), leastRulesToWeigh)
	g.Remove = func() error { return flushRules(ctx, l, at) }
	return g, nil
}

// flushRules removes all rules of the filter table.
func flushRules(ctx context.Context, l *rig.List, at *rig.Site) error {
	_, err := rig.RestoreRules(context.WithoutCancel(ctx), at, l.V6, "*filter\nCOMMIT\n")
	return err
}

// blockByIpset makes iptables drop packets from the entries of a set by one rule.
func blockByIpset(ctx context.Context, at *rig.Site, l *rig.List) (g rig.Loaded, err error) {
	if g, err = rig.RestoreIpset(ctx, at, l); err != nil {
		return g, err
	}
	g.Remove = func() error {
		if err := flushRules(ctx, l, at); err != nil {
			return err
		}
		_, _, err := rig.RunTool(context.WithoutCancel(ctx), at.Server, nil, "ipset", "destroy", "listed")
		return err
	}
	_, err = rig.RestoreRules(ctx, at, l.V6, "*filter\n-A INPUT "+rig.MatchListed+" -j DROP\nCOMMIT\n")
	return g, err
}

// blockByNft makes nft drop packets from the entries of a set by one rule.
func blockByNft(ctx context.Context, at *rig.Site, l *rig.List) (g rig.Loaded, err error) {
	if g, err = rig.LoadNftSet(ctx, at, l, rig.NftInput, rig.NftDrop(l)); err != nil {
		return g, err
	}
	g.Remove = func() error {
		_, _, err := rig.RunTool(context.WithoutCancel(ctx), at.Server, nil, "nft", "flush", "ruleset")
		return err
	}
	return g, nil
}

// blockByFloodwall applies a policy that drops packets from the entries of a set. Floodwall chooses the target.
func blockByFloodwall(ctx context.Context, at *rig.Site, l *rig.List) (g rig.Loaded, err error) {
	file, forget, err := rig.TempFile("blocked.txt", l.Write)
	if err != nil {
		return g, err
	}
	defer forget()
	policy := fmt.Sprintf("default: pass\nsets: {blocked: {file: %s}}\nrules: [{name: blocked, from: $blocked, then: drop}]\n", strconv.Quote(file))
	debug.FreeOSMemory() // a command starts with an empty heap, too
	start := time.Now()
	held, err := at.Install(ctx, policy, rig.TargetOptions("auto"))
	if err != nil {
		return g, err
	}
	g.Seconds, g.Remove = report.Samples{time.Since(start).Seconds()}, held.Remove
	bytes, err := programMemory(at)
	g.Bytes = float64(bytes)
	return g, err
}
