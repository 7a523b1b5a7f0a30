// SPDX-License-Identifier: Apache-2.0

// This file is the experiment udp: a UDP service and its clients under a flood of datagrams of the service's protocol.

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// The goals behind Floodwall. The queues of the lab's links lose datagrams of clients, too: see udpNotes.
const (
	leastTalk     = 0.999 // share of the datagrams of known clients that are answered during a flood
	leastServed   = 0.99  // the same for newcomers that prove their address
	mostWait      = 2     // multiple of the 99th percentile without a flood
	leastUnharmed = 0.98  // of the rate and the median wait without protection, without a flood
)

// udpLoad is a load of the service.
type udpLoad struct {
	name, label string
	flood       float64 // packets per second
	busy        bool    // clients send as fast as they get answers, not at udpRate
}

var udpLoads = []udpLoad{
	{"quiet", "no flood", 0, false},
	{"busy", "no flood, a datagram at each answer", 0, true},
	{"flood", "1 Mpps of random sources", barFlood, false},
}

// flooding is the stage of rows with a flood. In each round, these rows come after the rows without a flood.
const flooding = 1

// udpSite is a service behind a guard.
type udpSite struct {
	name, label string
	protocol    string // of the datagrams, one of rig.UDPServices
	quiet       bool   // it is also measured at the highest rate of the service's answers
	knows       bool   // it must first learn the clients
	guard       rig.Guard

	*floodedSite
	setup   *rig.Setup
	service rig.UDPService
	server  netip.AddrPort
}

// udpUnprotected is the row that Floodwall's other rows without a flood are compared with.
const udpUnprotected = "floodwall/off"

// The rows. A player must not exceed a limit by source: the limit is 40 packets per second.
func udpSites() []*udpSite {
	all := []*udpSite{
		{name: "nothing", label: "nothing", protocol: "generic", quiet: true},
		{name: "nft", label: "nft, 40/s per source (dynamic set)", protocol: "generic", guard: rig.Guard{Nft: fmt.Sprintf(`table ip guard {
	set per { type ipv4_addr; size 65536; flags dynamic,timeout; timeout 10s; }
	chain prerouting { type filter hook prerouting priority raw; udp dport %d update @per { ip saddr limit rate over 40/second burst 40 packets } drop; }
}
`, udpPort)}},
		{
			name: "hashlimit", label: "iptables hashlimit, 40/s per source", protocol: "generic",
			guard: rig.Guard{Iptables: fmt.Sprintf("*raw\n-A PREROUTING -p udp --dport %d -m hashlimit --hashlimit-above 40/sec --hashlimit-burst 40 --hashlimit-mode srcip"+
				" --hashlimit-htable-max 65536 --hashlimit-htable-expire 10000 --hashlimit-name game -j DROP\nCOMMIT\n", udpPort)},
		},
		{
			name: "floodwall/rule", label: "floodwall, a rule that names the flood's sources (upper bound)", protocol: "generic",
			guard: rig.Floodwall("xdp", udpPolicy("")+"rules: [{from: "+floodSources+", then: drop}]\n"),
		},
		{name: udpUnprotected, label: "floodwall, without udp", protocol: "generic", guard: rig.Floodwall("xdp", udpPolicy("")), quiet: true},
	}
	for _, u := range udpServices() {
		all = append(all, &udpSite{
			name: "floodwall/" + u.Protocol, label: "floodwall, protect: " + u.Protocol, protocol: u.Protocol, quiet: true, knows: true,
			guard: rig.Floodwall("xdp", udpPolicy(", udp: {protect: "+u.Protocol+"}")),
		})
	}
	return all
}

// udpServices returns the services of all protocols.
func udpServices() []rig.UDPService {
	return slices.Concat(rig.UDPServices, []rig.UDPService{rig.GameServer, rig.RakNetServer})
}

// udpPolicy is Floodwall's policy, without devices.
func udpPolicy(protection string) string {
	return fmt.Sprintf("default: drop\nservices: [{name: game, port: udp/%d%s}]\n", udpPort, protection)
}

// udpPort is the port of the service.
const udpPort = 7000

// The clients. Each sends 20 datagrams per second, like players and peers do. The newcomers during a flood are 200 others, which come once, and wait
// for newcomerTime.
const (
	udpClients   = 200
	udpRate      = 20 * udpClients
	meetRate     = udpClients // while the service learns them, without a flood
	newcomerRate = 5 * udpClients
	newcomerTime = 3 * time.Second
	udpTimeout   = time.Second
	firstClient  = 20_000 // the port of the first client
)

// runUDP measures a UDP service while an attacker sends it datagrams from random sources. It measures the answers to known clients and to newcomers
// during the flood, and the cost of protection without a flood.
func runUDP(ctx context.Context, s *rig.Session) error {
	return rig.With(ctx, s, func(b *rig.Builder) error { return s.Run(ctx, (&udpClientele{Builder: b}).table()) })
}

// udpClientele contains the clients of all rows.
type udpClientele struct {
	*rig.Builder
	sites  []*udpSite
	met    time.Time // time at which all clients last sent datagrams
	visits int       // number of visits of newcomers

	round   int
	flooded bool // a flood was sent in this round
}

// The method table returns the rows, and how their figures are published.
func (c *udpClientele) table() *rig.Table {
	t := &rig.Table{
		Title:   "udp: a UDP service under a flood of datagrams of its own kind",
		Results: []string{"answered", "answered/s", "half-ns", "p99-ns", "newcomers-served", "flood-pps"},
		Columns: []rig.Column{
			{Head: "answered", Unit: "answered", Show: rig.Percent}, {Head: "min .. max", Unit: "answered", Show: rig.PercentRange},
			{Head: "answered/s", Unit: "answered/s", Show: rig.Digits(0, 1)},
			{Head: "median", Unit: "half-ns", Show: rig.Millis}, {Head: "99%", Unit: "p99-ns", Show: rig.Millis},
			{Head: "newcomers served", Unit: "newcomers-served", Show: rig.Percent}, {Head: "flood taken kpps", Unit: "flood-pps", Show: rig.Digits(0, 1e3)},
		},
		Marks: []rig.Mark{rig.Unsteady("answered/s")},
		Notes: udpNotes(c.Session),
		Ranking: &rig.Ranking{
			Title: "udp: datagrams of known clients answered beside 1 Mpps, per second", Unit: "answers/s", Figure: "answered/s", Per: 1,
			Label: func(r *rig.Row) string {
				label, _ := strings.CutPrefix(r.Label, udpLoads[2].label+": ")
				return report.Choice(r.Stage == flooding, label, "")
			},
		},
		Disturbed: func(r rig.Reading) bool { return r["stalled-ns"] > float64(mostStalled) },
		Before:    c.before,
	}
	c.sites = udpSites()
	for _, at := range c.sites {
		at.setup = &rig.Setup{Label: at.label, Do: func(ctx context.Context) error { return at.prepare(ctx, c.Builder) }}
	}
	for _, l := range udpLoads {
		for _, at := range c.sites {
			if l.busy && !at.quiet {
				continue
			}
			row := &rig.Row{
				Name: l.name + "/" + at.name, Label: l.label + ": " + at.label, Setup: at.setup,
				Take: func(ctx context.Context, _ int) (rig.Reading, error) { return c.visit(ctx, at, l) },
			}
			row.Stage = report.Choice(l.flood > 0, flooding, 0)
			if at.knows {
				row.Goals = at.goals(l)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	other := func(name func(*rig.Row) string) func(*rig.Row) *rig.Row {
		return func(r *rig.Row) *rig.Row { return t.Find(name(r)) }
	}
	off := other(func(r *rig.Row) string { return "busy/" + udpUnprotected })
	calm := other(func(r *rig.Row) string { return "quiet/" + strings.TrimPrefix(r.Name, "flood/") })
	t.Shares = []rig.Share{
		{Unit: "p99-of-quiet", Of: "p99-ns", By: calm}, {Unit: "answered-of-off", Of: "answered/s", By: off},
		{Unit: "half-of-off", Of: "1/half-ns", By: off},
	}
	return t
}

// goals returns the goals of a row that protects the service.
func (s *udpSite) goals(l udpLoad) []rig.Goal {
	unsteady := rig.Unsteady("answered/s").On
	goal := func(unit, what string, bound float64, most bool) rig.Goal {
		return rig.Goal{Unit: unit, What: what, Bound: bound, Most: most, Unless: unsteady}
	}
	switch {
	case l.busy:
		return []rig.Goal{goal("answered-of-off", "rate", leastUnharmed, false), goal("half-of-off", "median", leastUnharmed, false)}
	case l.flood == 0:
		return nil
	}
	goals := []rig.Goal{goal("answered", "answered", leastTalk, false)}
	if serviceOf(s.protocol).Opens != "" {
		goals = append(goals, goal("newcomers-served", "newcomers", leastServed, false))
	}
	return append(goals, goal("p99-of-quiet", "p99", mostWait, true))
}

// udpNotes describe the choices of the experiment.
func udpNotes(s *rig.Session) []string {
	return []string{
		fmt.Sprintf("Clients: %d with a port each, of %d addresses, each in a /24 of its own, send %s datagrams a second together. The service sends", udpClients, len(clientAddrs()), report.CountText(udpRate)),
		fmt.Sprintf("each back. An answer counts that comes within %v; times are of answers. The flood is from random sources, half of it first", udpTimeout),
		"packets of the protocol and half such as follow them, without an identifier. Of quic all are such: an Initial is too long for a mix.",
		"Before the first round all clients talk until Floodwall knows them, without a flood. No identifier is issued: clients are known by",
		"their addresses and ports. Rounds have what is without a flood first, and floods are forgotten before the next round.",
		fmt.Sprintf("Newcomers are %d others of the same networks who come during the flood; each sends %d datagrams in %v. It is served when one is", udpClients, int(newcomerRate*newcomerTime.Seconds())/udpClients, newcomerTime),
		"answered; with a2s and raknet, when it has sent its challenge or cookie back and has the answer. Limits of nft and hashlimit are",
		"per source, twice what a client sends; their tables have 65,536 places.",
		fmt.Sprintf("Medians of %d rounds of %v, in which the rows take turns. CPU %d has the attacker, and before it the clients; CPU %d has the", s.Rounds, udpVisitTime(s), rig.SourceCPU, rig.ReceiverCPU),
		"service and, before it, the receive thread. Clients and attacker have a wire each: see dns.",
	}
}

// serviceOf returns the service of a protocol.
func serviceOf(protocol string) rig.UDPService {
	all := udpServices()
	return all[slices.IndexFunc(all, func(u rig.UDPService) bool { return u.Protocol == protocol })]
}

// prepare builds the site. The service ends with the builder.
func (s *udpSite) prepare(ctx context.Context, b *rig.Builder) (err error) {
	s.server, s.service = netip.AddrPortFrom(rig.Server4, udpPort), serviceOf(s.protocol)
	if s.floodedSite, err = newFloodedSite(b, rig.Server4); err != nil {
		return err
	}
	stop, err := b.Lab.NewEchoProcess(s.Server, s.server, rig.ReceiverCPU, lab.Ordinary)
	if err != nil {
		return err
	}
	b.Owned = append(b.Owned, stop)
	return b.Guard(ctx, s.Site, s.guard)
}

// talk makes the known clients exchange datagrams with the service.
func (s *udpSite) talk(ctx context.Context, rate float64, duration time.Duration) (lab.TalkSummary, error) {
	return s.talkFrom(ctx, clientAddrs(), lab.TalkOptions{Payload: rig.MustPayload(cmp.Or(s.service.Has, s.service.Lacks)), Rate: rate, Duration: duration})
}

// come makes the newcomers of the n-th visit send their first datagrams. If the protocol has a proof of the address, the newcomers give it.
func (s *udpSite) come(ctx context.Context, n int) (lab.TalkSummary, error) {
	o := lab.TalkOptions{Rate: newcomerRate, Duration: newcomerTime}
	if s.service.Opens != "" {
		o.Join = rig.MustPayload(s.service.Opens)
	} else {
		o.Payload = rig.MustPayload(s.service.Begins)
	}
	return s.talkFrom(ctx, newcomers(n), o)
}

// newcomers returns the addresses of the newcomers of the n-th visit: other addresses in the networks of the known clients.
func newcomers(n int) (from []netip.Addr) {
	for _, a := range clientAddrs() {
		b := a.As4()
		b[3] = byte(2 + n%250)
		from = append(from, netip.AddrFrom4(b))
	}
	return from
}

// talkFrom makes clients with these addresses exchange datagrams with the service.
func (s *udpSite) talkFrom(ctx context.Context, from []netip.Addr, o lab.TalkOptions) (lab.TalkSummary, error) {
	o.Host, o.Server, o.From, o.Clients, o.Port = s.clients.Host, s.server, from, udpClients, firstClient
	o.Timeout, o.CPU, o.Urgent = udpTimeout, rig.SourceCPU, true
	return lab.Talk(ctx, o)
}

// flows returns the flood: datagrams of the protocol's form, without an identifier of the service. Half of them are first packets, unless these are
// too long for a mix.
func (s *udpSite) flows() []lab.Flow {
	follow, begin := udpFlow(s.service.Lacks), udpFlow(cmp.Or(s.service.Opens, s.service.Begins))
	if len(begin.Payload) > lab.MostMixed {
		return []lab.Flow{follow}
	}
	follow.Weight, begin.Weight = 0.5, 0.5
	return []lab.Flow{follow, begin}
}

// meetTime is how long clients exchange datagrams until they are known. greetTime is how long they exchange datagrams so that they are not forgotten.
const (
	meetTime  = (ir.KnownTimes + 1) * ir.KnownUnit
	greetTime = 3 * time.Second
)

// before makes clients exchange datagrams before each stage, because the previous rows may take longer than a known client is remembered. Before the
// next round, Floodwall and the tables of the other tools forget a flood.
func (c *udpClientele) before(ctx context.Context, round, stage int) error {
	if round > c.round && c.flooded {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(ir.FloodTime + time.Second):
		}
	}
	c.round, c.flooded = round, stage == flooding
	return c.meet(ctx)
}

// meet makes the clients of all services exchange datagrams for a while, without a flood.
func (c *udpClientele) meet(ctx context.Context) error {
	lasts := meetTime
	if time.Since(c.met) < ir.KnownLife/2 {
		lasts = greetTime
	}
	ended, talking := make(chan error), 0
	for _, s := range c.sites {
		if !s.setup.Ready() {
			continue
		}
		talking++
		go func() {
			sum, err := s.talk(ctx, meetRate, lasts)
			if err == nil && s.service.Opens != "" {
				_, err = s.come(ctx, 0) // Floodwall learns the server's type from its answers
			}
			if err == nil && sum.Clients < udpClients {
				err = fmt.Errorf("%s: %d of %d clients had an answer without a flood", s.label, sum.Clients, udpClients)
			}
			ended <- err
		}()
	}
	var failed error
	for range talking {
		failed = errors.Join(failed, <-ended)
	}
	c.met = time.Now()
	return failed
}

// udpVisitTime returns how long clients exchange datagrams in a visit.
func udpVisitTime(s *rig.Session) time.Duration {
	return report.Choice(s.Quick, s.Phase/6, s.Phase/2)
}

// visit makes the clients exchange datagrams once. During a flood, newcomers come, too.
func (c *udpClientele) visit(ctx context.Context, s *udpSite, l udpLoad) (rig.Reading, error) {
	var flows []lab.Flow
	if l.flood > 0 {
		flows = s.flows()
		c.visits++
	}
	stop, err := s.begin(ctx, flows, l.flood, uint64(c.visits))
	if err != nil {
		return nil, err
	}
	sum, err := s.talk(ctx, report.Choice[float64](l.busy, 0, udpRate), udpVisitTime(c.Session))
	read := rig.Reading{
		"answered": sum.Share(), "answered/s": float64(sum.Answered) / sum.Took.Seconds(), "half-ns": float64(sum.Latency.P50),
		"p99-ns": float64(sum.Latency.P99), "stalled-ns": float64(sum.Stalled),
	}
	if half := float64(sum.Latency.P50); half > 0 {
		read["1/half-ns"] = 1 / half
	}
	if err == nil && l.flood > 0 {
		var come lab.TalkSummary
		come, err = s.come(ctx, c.visits)
		read["newcomers-served"] = float64(come.Clients) / udpClients
		read["stalled-ns"] = float64(max(sum.Stalled, come.Stalled))
	}
	mean, _, stopped := stop()
	if l.flood > 0 {
		read["flood-pps"] = mean
	}
	return read, errors.Join(err, stopped)
}
