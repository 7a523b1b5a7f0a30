// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// The goals for the clients behind Floodwall, with a flood of barFlood.
const (
	leastCompleted = 0.999 // of the connections
	mostSlower     = 2     // multiple of the 99th percentile of the connect time without the flood
	wholeFlood     = 0.95  // of barFlood; with less of it, the row shows nothing
	evenFlood      = 0.50  // the same for the weakest part of watchPart
)

// synproxyClientRate is the connections per second of all clients: a fifth of the talk's. The clients share the CPU of the attacker and have a higher
// priority. With more connections, the attacker would lack the CPU time for barFlood.
const synproxyClientRate = 2_000

// synproxyClientTimeout returns how long clients wait for an answer, by the duration for which they connect. It is at most the time after which a
// lost SYN is sent again.
func synproxyClientTimeout(duration time.Duration) time.Duration { return min(time.Second, 5*duration) }

// request is the request of each client. nginx answers in one segment.
var request = []byte("GET / HTTP/1.0\r\n\r\n")

// mostStalled is the longest time that the clients' thread may be without CPU. Nothing of the experiment uses the CPU for longer. The attacker never
// sleeps, so the kernel gives the CPU to waiting ordinary processes for 50 ms of each second (kernel/sched/deadline.c, dl_server).
const mostStalled = 5 * time.Millisecond

// visitTime returns how long clients connect in a visit: about a fifth of a phase, because there are five times as many loads.
func visitTime(s *rig.Session) time.Duration {
	return report.Choice(s.Quick, s.Phase/6, s.Phase/5)
}

// clientsTable returns the clients' results, without a flood and with floods of barFlood.
func clientsTable(s *rig.Session) *rig.Table {
	const chart = "clients' connections per second over the rate of a SYN flood"
	t := &rig.Table{
		Title: "synproxy: clients beside a flood", Doing: "clients, ",
		Results: []string{"completed", "connections/s", "connect-p50-ns", "connect-p99-ns", "answered-p99-ns", "entries", "flood-pps", "least-flood-pps"},
		Columns: []rig.Column{
			{Head: "completed", Unit: "completed", Show: rig.Percent}, {Head: "min .. max", Unit: "completed", Show: rig.PercentRange},
			{Head: "per s", Unit: "connections/s", Show: rig.Digits(0, 1)},
			{Head: "connect: half", Unit: "connect-p50-ns", Show: rig.Millis}, {Head: "99%", Unit: "connect-p99-ns", Show: rig.Millis},
			{Head: "x no flood", Unit: "x-quiet", Show: rig.Digits(2, 1)}, {Head: "answered: 99%", Unit: "answered-p99-ns", Show: rig.Millis},
			{Head: "flood Mpps", Unit: "flood-pps", Show: func(s report.Samples) string { return report.Choice(s.Longest() > 0, rig.Digits(2, 1e6)(s), "") }},
			{Head: "entries", Unit: "entries", Show: func(s report.Samples) string { return report.CountText(int(s.Longest())) }},
		},
		Marks: []rig.Mark{
			{Sign: "~", On: func(r *rig.Row) bool {
				return r.Figure("stalled-ns").Longest() > float64(mostStalled) || r.Figure("completed").Unsteady()
			},
				Note: fmt.Sprintf("~ unsteady: others had the clients' CPU for more than %v at a time, or the rounds differ by more than %.0f%%.", mostStalled, 100*report.UnsteadySpread)},
			{Sign: "v", On: weak, Note: fmt.Sprintf("v the host took less than %.0f%% of the flood, or less than %.0f%% in some %v: no bar is judged.", 100*wholeFlood, 100*evenFlood, watchPart)},
		},
		Notes: []string{
			fmt.Sprintf("%s connections per second are due, a fifth of the talk's as two cores do all the work, from 250 addresses, each in", report.CountText(synproxyClientRate)),
			fmt.Sprintf("a /24 of its own; one is completed when its answer has come within %v. Times count from when it was due.", synproxyClientTimeout(visitTime(s))),
			fmt.Sprintf("Clients and flood have a wire each; the two meet in CPU %d, where nginx runs when its receive threads do not.", rig.ReceiverCPU),
			"Who is overwhelmed by the flood there leaves nginx nothing; in the kernel's own softirq threads, nginx would get a share.",
			"XDP_TX and XDP_DROP are on the attacker's wire alone, in front of no other defence: what the lab itself makes of the flood.",
			"x no flood: only rounds without one count in which nobody else had the clients' CPU.",
			"Entries are those of the flooded host's conntrack table at the end.",
			fmt.Sprintf("Medians of %d rounds of %v, in which the rows take turns.", s.Rounds, visitTime(s)),
		},
		Disturbed: func(r rig.Reading) bool { return r["stalled-ns"] > float64(mostStalled) },
	}
	t.Shares = []rig.Share{{Unit: "x-quiet", Of: "some-p99-ns", Base: "calm-p99-ns", By: func(r *rig.Row) *rig.Row {
		return report.Choice(r.Load == quiet.name(), nil, t.Find("clients/"+r.Kind+"/"+quiet.name()))
	}}}
	t.After = func(o *report.Outcome) {
		var guards []*rig.Row
		for _, g := range synproxyGuards() {
			if g.limit == nil {
				guards = append(guards, &rig.Row{Name: "clients/" + g.name, Label: g.label})
			}
		}
		rateChart(o, chart, chart, "connections/s", append([]float64{0}, clientRates(s)...), guards, 1, func(r *rig.Row, pps float64) report.Samples {
			if found := t.Find(r.Name + "/" + report.Choice(pps == 0, quiet, load{SYNs, pps}).name()); found != nil {
				return found.Figure("connections/s")
			}
			return nil
		})
	}
	return t
}

// weak reports whether the flood during a visit was too weak. This can happen because the attacker shares a CPU with the clients.
func weak(r *rig.Row) bool {
	return r.Figure("flood-share").Median() < wholeFlood || r.Figure("least-share").Median() < evenFlood
}

// clientsRow describes the clients of a guard during a flood. Floods of other rates than barFlood appear only in the chart.
func clientsRow(s *rig.Session, at *synproxySite, setup *rig.Setup, g synproxyGuard, l load) *rig.Row {
	r := &rig.Row{
		Name: "clients/" + g.name + "/" + l.name(), Label: g.label + ": " + l.label(), Load: l.name(), Kind: g.name, Setup: setup,
		Hidden: l != quiet && l.pps != barFlood,
		Take: func(ctx context.Context, round int) (rig.Reading, error) {
			return at.visit(ctx, l, visitTime(s), uint64(round)+1)
		},
	}
	if g.rival == "" {
		return r
	}
	if l.pps == barFlood {
		r.Goals = append(r.Goals,
			rig.Goal{Unit: "completed", What: "completed", Bound: leastCompleted, Unless: weak},
			rig.Goal{Unit: "x-quiet", What: "connect p99 x quiet", Bound: mostSlower, Most: true, Unless: weak})
	}
	if !g.behind {
		r.Goals = append(r.Goals, rig.Goal{Unit: "entries", What: "entries", Bound: 0, Most: true, Worst: true})
	}
	return r
}

// visit makes clients connect for a duration during a flood.
func (s *synproxySite) visit(ctx context.Context, l load, duration time.Duration, seed uint64) (rig.Reading, error) {
	if err := s.Server.FlushConntrack(); err != nil {
		return nil, err
	}
	var flows []lab.Flow
	if l.flood != nil {
		flows = []lab.Flow{l.flood.Flow(s.web.Addr(), s.web.Port())}
	}
	stop, err := s.begin(ctx, flows, l.pps, seed)
	if err != nil {
		return nil, err
	}
	sum, err := lab.Connect(ctx, lab.ConnectOptions{
		Host: s.clients.Host, Server: s.web, From: clientAddrs(), Request: request,
		Rate: synproxyClientRate, Duration: duration, Timeout: synproxyClientTimeout(duration), CPU: rig.SourceCPU, Urgent: true,
	})
	mean, least, stopped := stop()
	table, looked := s.Server.Conntrack()
	return clientsReading(sum, l, mean, least, table.Entries), errors.Join(err, stopped, looked)
}

// clientsReading returns the figures of a visit. The parameters mean and least are the packets per second of the flood that the host handled, over
// the whole time and in its weakest part. The parameter entries is the final size of the host's table of connections. A visit without a flood in
// which others delayed the clients' CPU is no reference.
func clientsReading(sum lab.ConnectSummary, l load, mean, least float64, entries int) rig.Reading {
	p99 := float64(sum.Connect.P99)
	read := rig.Reading{
		"completed": sum.Share(), "connections/s": sum.Share() * synproxyClientRate, "connect-p50-ns": float64(sum.Connect.P50), "connect-p99-ns": p99,
		"answered-p99-ns": float64(sum.Answered.P99), "entries": float64(entries), "stalled-ns": float64(sum.Stalled),
		"flood-pps": mean, "least-flood-pps": least,
	}
	if p99 > 0 {
		read["some-p99-ns"] = p99
		if sum.Stalled <= mostStalled {
			read["calm-p99-ns"] = p99
		}
	}
	if l.flood != nil {
		read["flood-share"], read["least-share"] = mean/l.pps, least/l.pps
	}
	return read
}

// Flood is a flood that an attacker sends to a web server from random sources.
type Flood struct {
	name, label string
	flags       lab.TCPFlags
	options     []byte
	figure      string // the unit of the figure that measures a defence

	limit        string  // the name of the guard that is the limit
	share, times float64 // Floodwall's goals: a share of the limit, and a multiple of the rival's rate
}

// The two floods. SYNs are as Linux sends them, in frames of 74 bytes. ACKs have timestamps, in frames of 66 bytes. The sequence numbers are random.
var (
	SYNs = &Flood{"syn", "SYN flood", lab.SYN, lab.SYNOptions, "SYN-ACKs/s", limitTX, 0.60, 8}
	ACKs = &Flood{"ack", "ACK flood", lab.ACK, []byte{1, 1, 8, 10, 0, 0, 16, 0, 0, 0, 32, 0}, "ACKs-dropped/s", limitDrop, 0.75, 7}
)

// tcpFloods are both floods, in the order of the tables.
var tcpFloods = []*Flood{SYNs, ACKs}

// floodSources are the sources of floods. They are random addresses, and none of them is a client's.
const floodSources = "128.0.0.0/2"

// Flow returns the flow of the flood to a server.
func (f *Flood) Flow(to netip.Addr, port uint16) lab.Flow {
	return rig.TCPFlood(lab.MustAddrs(floodSources), to, port, f.flags, f.options)
}

// floodBatch is the number of packets that the attacker sends in a batch if answers arrive on its CPU. A batch of 256 packets takes a quarter of a
// millisecond at 1 Mpps. In this time, the queue of the answers would overflow (kernel drivers/net/veth.c, VETH_RING_SIZE).
const floodBatch = 64

// source prepares a flood. The options define how it is sent.
func (s *synproxySite) source(f *Flood, o lab.SourceOptions) (*lab.Source, error) {
	o.Flows = []lab.Flow{f.Flow(s.web.Addr(), s.web.Port())}
	o.CPU = rig.SourceCPU
	return s.Lab.NewSource(s.Out, o)
}

// flooded has the effect of a flood, in packets per second.
type flooded struct {
	taken     float64 // packets that the receive thread handled
	answered  float64 // packets that were answered with SYN-ACKs, or that the limit's program sent back
	refused   float64 // packets that were answered with resets
	ran       float64 // share of the time that the receive thread ran
	disturbed bool
}

// figure returns the rate that counts for a flood: the answered SYNs, or the ACKs without an answer.
func (f *flooded) figure(of *Flood) float64 {
	if of == SYNs {
		return f.answered
	}
	return max(0, f.taken-f.refused-f.answered)
}

// flood sends one flood to the site for the time window. The parameter batch is the number of packets that are sent at a time; 0: the source's
// default.
func (s *synproxySite) flood(ctx context.Context, f *Flood, pps float64, batch int, seed uint64, window time.Duration) (r flooded, err error) {
	source, err := s.source(f, lab.SourceOptions{
		Batch: batch, Rate: pps, CatchUp: rig.FloodCatchUp, Count: uint64(pps * window.Seconds()), Seed: seed, Urgent: true,
	})
	if err != nil {
		return r, err
	}
	before, err := s.returned()
	if err != nil {
		return r, errors.Join(err, source.Close())
	}
	m, err := lab.MeasureRun(ctx, source, s.In)
	after, looked := s.returned()
	if err := errors.Join(err, looked, source.Close()); err != nil {
		return r, err
	}
	perSecond := func(n uint64) float64 { return float64(n) / m.Time.Seconds() }
	r = flooded{taken: m.PPS, ran: m.Ran, disturbed: rig.Disturbed(m)}
	r.refused = perSecond(after.resets - before.resets)
	r.answered = perSecond(after.all()-before.all()) - r.refused
	return r, nil
}

// able returns the figure that would result if the receive thread ran all the time, with the same cost per packet. The attacker shares its CPU with
// the receiver of the answers. So it may send fewer packets than the fastest defence can handle.
func (f *flooded) able(of *Flood) float64 { return f.figure(of) / min(1, max(f.ran, 0.01)) }

// climb searches for the highest figure by raising the offered rate. It continues as long as a higher rate raises the figure by the factor climbStep.
// mostOffer is the highest rate that the lab's source can send.
const (
	climbStep = 1.03
	mostOffer = 12e6
)

// climb returns the highest figure that the function take reports for any offered rate. The parameter best is the highest figure so far. A receiver
// may handle fewer packets of a full flood than of a flood that is slightly above its capacity: see rig.RateTable.
func climb(best float64, factors []float64, take func(pps float64) (float64, error)) (float64, error) {
	for best > 0 {
		base := best
		for _, factor := range factors {
			figure, err := take(min(factor*base, mostOffer))
			if err != nil {
				return best, err
			}
			best = max(best, figure)
		}
		if best <= climbStep*base || slices.Max(factors)*base > mostOffer {
			break
		}
	}
	return best, nil
}

// idleShare is a share of the time. If the receive thread is idle for more than this share, the source limits the figure.
const idleShare = 0.05

// most measures one round with a flood: all rates of the curve, and the highest figure at any rate. The parameter resets is true if ACKs are answered
// with resets.
func (s *synproxySite) most(ctx context.Context, session *rig.Session, f *Flood, resets bool, seed uint64) (rig.Reading, error) {
	var best flooded
	read := rig.Reading{}
	take := func(pps float64) (float64, error) {
		r, err := s.floodOnce(ctx, session, f, resets, pps, seed)
		figure := r.figure(f)
		if figure > best.figure(f) {
			best = r
		}
		return figure, err
	}
	for _, pps := range floodRates(session) {
		figure, err := take(pps)
		if err != nil {
			return nil, err
		}
		read[rateUnit(pps)] = figure
	}
	_, err := climb(best.figure(f), report.Choice(session.Quick, []float64{1.2, 2}, []float64{1.1, 1.3, 1.6, 2.2}), take)
	read["Mpps"], read[able] = best.figure(f)/1e6, best.able(f)/1e6
	read["disturbed"] = report.Choice[float64](best.disturbed, 1, 0)
	read["starved"] = report.Choice[float64](!best.disturbed && best.ran < 1-idleShare, 1, 0)
	return read, err
}

// floodOnce makes a measurement, and repeats it if it was disturbed. If all measurements were disturbed, it returns the one in which most packets
// arrived.
func (s *synproxySite) floodOnce(ctx context.Context, session *rig.Session, f *Flood, resets bool, pps float64, seed uint64) (best flooded, err error) {
	batch := 0 // the source's default, which is faster
	if f == SYNs || resets {
		batch = floodBatch
	}
	for range session.Tries() {
		r, err := s.flood(ctx, f, pps, batch, seed, session.Window)
		if err != nil || !r.disturbed {
			return r, err
		}
		if r.taken >= best.taken {
			best = r
		}
	}
	return best, nil
}

// synproxySite is a web server, on the flooded host or behind it.
type synproxySite struct {
	*floodedSite
	web    netip.AddrPort // the server
	counts rig.LoadedPeer // of the packets that arrive at the attacker
	inner  []*lab.Device  // the link to the server, if the server is behind
}

// prepare builds the site with a guard. The server ends with the builder.
func (s *synproxySite) prepare(ctx context.Context, b *rig.Builder, g synproxyGuard) (err error) {
	s.web = netip.AddrPortFrom(rig.Server4, 80)
	if s.floodedSite, err = newFloodedSite(b, rig.Server4, behindAddr); err != nil {
		return err
	}
	if err := watchSpoofed(b, s); err != nil {
		return err
	}
	if g.behind {
		if err := s.connectBackend(b.Sites); err != nil {
			return err
		}
	}
	n, err := rig.StartPlainNginx(ctx, s.host(), rig.ReceiverCPU, s.web)
	if err != nil {
		return err
	}
	b.Owned = append(b.Owned, n.Close)
	return b.Guard(ctx, s.Site, g.guard)
}

// connectBackend adds a host behind the flooded host, for the server.
func (s *synproxySite) connectBackend(n int) error {
	inner, end, err := connectBehind(s.Site, n, rig.ServerEnd)
	s.web, s.inner = netip.AddrPortFrom(behindAddr, 80), []*lab.Device{inner, end}
	return err
}

// host returns the server's host.
func (s *synproxySite) host() *lab.Host {
	if len(s.inner) > 0 {
		return s.inner[1].Host
	}
	return s.Server
}

// watchSpoofed counts the packets that arrive at the attacker.
func watchSpoofed(b *rig.Builder, s *synproxySite) (err error) {
	if s.counts, err = rig.LoadPeer(rig.Spoofed, nil, nil); err != nil {
		return err
	}
	b.Owned = append(b.Owned, s.counts.Counts.Close)
	_, err = b.Lab.Attach(s.Out, b.Own(s.counts.Program))
	return err
}

// returned is the numbers of frames that came back to the attacker.
type returned struct{ synAcks, resets, others uint64 }

func (r returned) all() uint64 { return r.synAcks + r.resets + r.others }

// returned reads the counters.
func (s *synproxySite) returned() (r returned, err error) {
	for i, to := range []*uint64{&r.synAcks, &r.resets, &r.others} {
		if *to, _, err = s.counts.Count(uint32(i)); err != nil {
			break
		}
	}
	return r, err
}
