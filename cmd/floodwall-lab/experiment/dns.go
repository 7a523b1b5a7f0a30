// SPDX-License-Identifier: Apache-2.0

// This file is the experiment dns: a resolver and its clients under a flood of queries.

package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// flood is a flood of queries with large answers, from spoofed sources.
type flood struct {
	name, label string
	from        string // the spoofed sources; "": there is no flood
	rate        float64
	names       bool // the queries are for random names that do not exist; else they are ANY of a name with a large answer
}

// The floods. The first has more queries than any resolver can answer. The second has the rate at which attackers use a resolver for its answers,
// which the resolver does not notice. Rows are grouped by flood, so that all defences against one flood are next to each other.
var floods = []flood{
	{"quiet", "no flood", "", 0, false},
	{"random", "2 Mpps of random sources", "128.0.0.0/2", 2e6, false},
	{"victim", "20,000/s of the sources of one /24", "150.10.20.0/24", 20e3, false},
	{"names", "200,000/s for names that do not exist", "128.0.0.0/2", 200e3, true},
}

// dnsSite is a resolver behind a guard.
type dnsSite struct {
	name, label string
	conf        string // further lines for unbound's configuration
	guard       rig.Guard
	floods      string // the names of the floods for which the site is measured

	*floodedSite
	setup  *rig.Setup
	victim rig.LoadedPeer // counts the packets that arrive at the other ends of the resolver's links
}

// dnsSites returns the sites for which each flood has a row. Unbound's manual recommends 1,000 queries per second as a limit for recursion. It
// recommends no limit for each address. 20 is the limit of Floodwall's guard for each address.
func dnsSites() []*dnsSite {
	return []*dnsSite{
		{name: "nothing", label: "unbound", floods: "quiet random victim names"},
		{
			name: "small-buffers", label: "unbound with the system's socket buffers", floods: "random",
			conf: "\tso-rcvbuf: 0\n\tso-sndbuf: 0\n",
		},
		{name: "unbound", label: "unbound with its own limits", floods: "random victim names", conf: "\tip-ratelimit: 20\n\tratelimit: 1000\n"},
		{
			name: "unbound-any", label: "unbound with its own limits and deny-any", floods: "random",
			conf: "\tip-ratelimit: 20\n\tratelimit: 1000\n\tdeny-any: yes\n",
		},
		{name: "nft", label: "unbound behind nft, 20/s of each source", floods: "names", guard: rig.Guard{Nft: perSource}},
		{name: "floodwall", label: "unbound behind floodwall", floods: "quiet random victim names", guard: rig.Floodwall("xdp", "default: drop\nservices:\n  - "+service+"\n")},
	}
}

// perSource is an nft ruleset that limits each source as Floodwall's guard does.
const perSource = `table ip guard {
set sources {
type ipv4_addr
size 65535
flags dynamic,timeout
timeout 10s
}
chain prerouting {
type filter hook prerouting priority raw;
udp dport 53 add @sources { ip saddr limit rate over 20/second burst 40 packets } drop
}
}
`

// service is the service in docs/guides/open-resolver.md.
const service = "{name: dns, port: [udp/53, tcp/53], guard: dns, track: false}"

// dnsGoals are the goals for clients and victims if Floodwall protects the resolver, for any flood.
var dnsGoals = []rig.Goal{
	{Unit: "answered", What: "answered", Bound: 0.99},
	{Unit: "amplification", What: "amplification", Bound: 1, Most: true},
}

// runDNS measures an open resolver while an attacker sends it queries with large answers from spoofed sources. It measures the answers to the
// clients, and the answers to the victims, which sent no queries.
func runDNS(ctx context.Context, s *rig.Session) error {
	queries, remove, err := rig.TempFile("queries", func(w io.Writer) error {
		_, err := io.WriteString(w, queriesText())
		return err
	})
	if err != nil {
		return err
	}
	defer remove()
	return rig.With(ctx, s, func(b *rig.Builder) error { return s.Run(ctx, dnsTable(b, queries)) })
}

// dnsTable returns the rows, and defines how their figures are published. The clients' queries are in the file queries.
func dnsTable(b *rig.Builder, queries string) *rig.Table {
	t := &rig.Table{
		Title: "dns: a resolver under a flood of queries in the names of others",
		Results: []string{
			"answered", "answered/s", "p50-ns", "p99-ns", "truncated", "flood-kpps", "taken-kpps", "sent-B", "others-B", "amplification",
		},
		Columns: []rig.Column{
			{Head: "answered", Unit: "answered", Show: rig.Percent}, {Head: "min .. max", Unit: "answered", Show: rig.PercentRange},
			{Head: "answered/s", Unit: "answered/s", Show: rig.Digits(0, 1)},
			{Head: "half", Unit: "p50-ns", Show: rig.Millis}, {Head: "99%", Unit: "p99-ns", Show: rig.Millis},
			{Head: "truncated/s", Unit: "truncated/s", Show: rig.Digits(0, 1)}, {Head: "flood kpps", Unit: "flood-kpps", Show: rig.Digits(0, 1)},
			{Head: "taken kpps", Unit: "taken-kpps", Show: rig.Digits(0, 1)}, {Head: "MB/s sent", Unit: "sent-B/s", Show: rig.Digits(1, 1e6)},
			{Head: "MB/s to others", Unit: "others-B/s", Show: rig.Digits(1, 1e6)}, {Head: "times", Unit: "amplification", Show: rig.Digits(2, 1)},
		},
		Marks:   []rig.Mark{rig.Unsteady("answered")},
		Notes:   dnsNotes(b.Session),
		Ranking: &rig.Ranking{Title: "dns: clients' queries answered in full, per second", Unit: "answers/s", Figure: "answered/s", Per: 1},
	}
	sites := dnsSites()
	for _, at := range sites {
		at.setup = &rig.Setup{Label: at.label, Do: func(ctx context.Context) error { return at.prepare(ctx, b) }}
	}
	for _, f := range floods {
		for _, at := range sites {
			if !strings.Contains(at.floods, f.name) {
				continue
			}
			row := &rig.Row{Name: f.name + "/" + at.name, Label: f.label + ": " + at.label, Setup: at.setup}
			row.Take = func(ctx context.Context, round int) (rig.Reading, error) {
				return at.visit(ctx, f, queries, dnsTime(b.Session), uint64(round)+1)
			}
			if at.guard.Policy != "" {
				row.Goals = dnsGoals
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// dnsNotes returns texts that describe the choices of the experiment.
func dnsNotes(s *rig.Session) []string {
	return []string{
		fmt.Sprintf("Clients: dnsperf asks for %s names %s times a second from %d addresses, each in a /24 of its own; an answer that takes",
			report.CountText(dnsNames), report.CountText(clientRate), clientCount),
		fmt.Sprintf("longer than %v is lost, and one that is truncated does not count. Floods: ANY queries of %d bytes with EDNS,", clientTimeout(dnsTime(s)), len(queryFor(bigName, typeANY))),
		"random identifiers and ports, for a name of which unbound sends 3,028 bytes; or A queries for random names of the clients'",
		"zone, whose own names the clients have asked for before. MB are of all frames: what the attacker",
		"sends, and what goes to addresses that are not the clients'. Clients and attacker have a wire each to the resolver, whose",
		"one CPU receives both: in the 256 places of one wire's queue, a flood pushes queries aside before any firewall sees them.",
		"Unbound resolves from a zone of its own, as if upstream, into its cache; its limits are ip-ratelimit 20 and ratelimit",
		"1000. Its sockets hold 4 MB, which its manual names for busy servers; in one row, what the system gives. That small",
		"buffer flatters it here: clients ask from the attacker's CPU, and so whenever the attacker pauses, and find it empty.",
		"Floodwall's policy is `default: drop` with the service of docs/guides/open-resolver.md:",
		"`" + service + "`",
		fmt.Sprintf("Medians of %d rounds of %v, in which the rows take turns. CPU %d has the attacker, and before it the clients; CPU %d has unbound",
			s.Rounds, dnsTime(s), rig.SourceCPU, rig.ReceiverCPU),
		"and, before it, the receive thread, as interrupts are.",
	}
}

// dnsTime returns the time for which clients send queries in a visit.
func dnsTime(s *rig.Session) time.Duration { return report.Choice(s.Quick, s.Phase*2/3, s.Phase) }

// prepare builds a site. Its resolver ends with the builder.
func (s *dnsSite) prepare(ctx context.Context, b *rig.Builder) (err error) {
	if s.floodedSite, err = newFloodedSite(b, rig.Server4); err != nil {
		return err
	}
	if _, _, err := rig.RunTool(ctx, s.clients.Host, strings.NewReader(clientRules()), "nft", "-f", "-"); err != nil {
		return err
	}
	if s.victim, err = loadVictim(); err != nil {
		return err
	}
	if err := s.sink.Close(); err != nil { // the victim's program takes its place
		return err
	}
	b.Owned = append(b.Owned, s.victim.Counts.Close)
	b.Own(s.victim.Program)
	for _, d := range []*lab.Device{s.Out, s.clients} {
		if _, err := b.Lab.Attach(d, s.victim.Program); err != nil {
			return err
		}
	}
	r, err := startResolver(ctx, s.Server, s.conf)
	if err != nil {
		return err
	}
	b.Owned = append(b.Owned, r.Close)
	return b.Guard(ctx, s.Site, s.guard)
}

// floodEnd is the time by which the attacker ends before the clients. Both start together. While dnsperf waits for the last answers, it uses the
// whole CPU that the attacker needs.
const floodEnd = 50 * time.Millisecond

// visit makes the clients send queries for a duration during a flood. In this time, this process need not run, because all of its work is done
// before.
func (s *dnsSite) visit(ctx context.Context, f flood, queries string, duration time.Duration, seed uint64) (rig.Reading, error) {
	asked := time.Duration(wholeSeconds(duration)) * time.Second
	source, frame, err := s.attacker(f, asked-floodEnd, seed)
	if err != nil {
		return nil, err
	}
	if source != nil {
		defer source.Close()
	}
	if f.names { // the resolver knows the names, as clients have asked for them before
		earlier, err := startClients(s.clients.Host, queries, time.Second)
		if err == nil {
			_, _, err = earlier.answers(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	before, err := s.look()
	if err != nil {
		return nil, err
	}
	asking, err := startClients(s.clients.Host, queries, asked)
	if err != nil {
		return nil, err
	}
	if source != nil {
		err = source.Run(ctx)
	}
	sent, latency, failed := asking.answers(ctx)
	after, looked := s.look()
	if err := errors.Join(err, failed, looked); err != nil {
		return nil, err
	}
	came := after.since(before)
	read := dnsReading(sent, latency, came.truncated, asked)
	if source != nil {
		came.add(read, source.Sent(), frame, source.Took())
	}
	return read, nil
}

// dnsReading returns the figures of the clients. The parameter sent is the number of their queries. The parameter truncated is the number of
// truncated answers.
func dnsReading(sent uint64, latency []time.Duration, truncated uint64, asked time.Duration) rig.Reading {
	share := 0.0
	if sent > 0 {
		share = max(0, float64(len(latency))-float64(truncated)) / float64(sent)
	}
	return rig.Reading{
		"answered": share, "answered/s": share * float64(sent) / asked.Seconds(), "truncated": float64(truncated),
		"truncated/s": float64(truncated) / asked.Seconds(), "p50-ns": float64(percentile(latency, 0.5)), "p99-ns": float64(percentile(latency, 0.99)),
	}
}

// add adds the figures of the attacker's packets to a reading, and those of the answers that went to other hosts. The parameter frame is the length
// in bytes of the attacker's frames.
func (a arrivals) add(read rig.Reading, sent uint64, frame int, took time.Duration) {
	bytes, others := float64(sent)*float64(frame), float64(a.othersBytes)
	read["flood-kpps"], read["taken-kpps"] = float64(sent)/took.Seconds()/1e3, float64(a.received)/took.Seconds()/1e3
	read["sent-B"], read["sent-B/s"] = bytes, bytes/took.Seconds()
	read["others-B"], read["others-B/s"] = others, others/took.Seconds()
	read["amplification"] = report.Choice(bytes > 0, others/bytes, 0)
}

// look reads all counters.
func (s *dnsSite) look() (a arrivals, err error) {
	if a, err = readArrivals(s.victim); err == nil {
		a.received, err = s.In.Received()
	}
	return a, err
}

// randomLabelAt is the offset of the second byte of the first label of the name in a query.
const randomLabelAt = 12 + 1 + 1

// attacker prepares a flood of the given duration. It returns nil if there is no flood. The result frame is the length of the frames in bytes.
func (s *dnsSite) attacker(f flood, duration time.Duration, seed uint64) (source *lab.Source, frame int, err error) {
	if f.from == "" {
		return nil, 0, nil
	}
	query, random := queryFor(bigName, typeANY), 0
	if f.names {
		query, random = queryFor("x--------."+zoneName, typeA), randomLabelAt
	}
	source, err = s.Lab.NewSource(s.Out, lab.SourceOptions{
		Flows: []lab.Flow{{
			From: lab.MustAddrs(f.from), To: lab.Addr(rig.Server4), SPort: lab.AnyPort, DPort: lab.Port(resolverAt.Port()),
			Payload: query, RandomID: true, Random: random,
		}},
		CPU: rig.SourceCPU, Rate: f.rate, CatchUp: rig.FloodCatchUp, Count: uint64(f.rate * duration.Seconds()), Seed: seed, Urgent: true,
	})
	return source, 14 + 20 + 8 + len(query), err
}
