// This file is the experiment of that name: a resolver and its clients under a flood of queries.

package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// runDNS measures a resolver that anybody may use while an attacker asks it for much in the names of others: what its
// clients get, and what the others get that never asked.
func runDNS(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) error {
		b := &dnsBuilder{Builder: rig.Builder{Session: s, Lab: l}}
		defer b.Close()
		queries, remove, err := rig.TempFile("queries", func(w io.Writer) error {
			_, err := io.WriteString(w, queriesText())
			return err
		})
		if err != nil {
			return err
		}
		defer remove()
		b.queries = queries
		for _, g := range guards {
			wanted := slices.DeleteFunc(slices.Clone(g.floods), func(f *flood) bool { return !b.Wants(rowName(f, g)) })
			if len(wanted) == 0 {
				continue
			}
			var at *dnsSite
			missing, err := b.SetUp(g.label, func() (err error) {
				at, err = dnsNewSite(ctx, &b.Builder, g)
				return err
			})
			if err != nil {
				return err
			}
			for _, f := range wanted {
				b.cases = append(b.cases, &dnsTestCase{guard: g, flood: f, site: at, missing: missing})
			}
		}
		// The table is by flood, so that what helps against one stands together.
		slices.SortStableFunc(b.cases, func(x, y *dnsTestCase) int {
			return slices.Index(floods, x.flood) - slices.Index(floods, y.flood)
		})
		defer b.publish() // what there is, also when the rest cannot be measured
		return b.measure(ctx)
	})
}

// flood is queries for much, in the names of others.
type flood struct {
	name, label string
	from        string // the sources that it claims; "": there is no flood
	rate        float64
	names       bool // for random names that do not exist, else ANY of a long one
}

// The floods: one that no resolver can answer, and one of the rate at which attackers use a resolver for its answers,
// of which it knows nothing.
var (
	noFlood = &flood{"quiet", "no flood", "", 0, false}
	random  = &flood{"random", "2 Mpps of random sources", "128.0.0.0/2", 2e6, false}
	oneNet  = &flood{"victim", "20,000/s of the sources of one /24", "150.10.20.0/24", 20e3, false}
	noNames = &flood{"names", "200,000/s for names that do not exist", "128.0.0.0/2", 200e3, true}
	floods  = []*flood{noFlood, random, oneNet, noNames}
)

// guard is what protects the resolver.
type guard struct {
	name, label string
	conf        string // of unbound, more lines
	policy      string // of Floodwall; "": none
	nft         string // a ruleset; "": none
	floods      []*flood
}

// guards are the rows. Unbound's limits are those that its manual names for what they are against: 1,000 queries
// per second for recursion; for addresses it names none: 20 is what Floodwall's guard has for one.
var guards = []guard{
	{name: "nothing", label: "unbound", floods: floods},
	{
		name: "small-buffers", label: "unbound with the system's socket buffers", floods: floods[1:2],
		conf: "\tso-rcvbuf: 0\n\tso-sndbuf: 0\n",
	},
	{
		name: "unbound", label: "unbound with its own limits", floods: floods[1:],
		conf: "\tip-ratelimit: 20\n\tratelimit: 1000\n",
	},
	{
		name: "unbound-any", label: "unbound with its own limits and deny-any", floods: floods[1:2],
		conf: "\tip-ratelimit: 20\n\tratelimit: 1000\n\tdeny-any: yes\n",
	},
	{name: "nft", label: "unbound behind nft, 20/s of each source", floods: floods[3:], nft: perSource},
	{name: "floodwall", label: "unbound behind floodwall", floods: floods, policy: dnsPolicy},
}

// perSource limits each source as Floodwall's guard does.
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

// dnsPolicy is Floodwall's, without its devices.
const dnsPolicy = "default: drop\nservices:\n  - " + service + "\n"

// service is the service of docs/guides/open-resolver.md.
const service = "{name: dns, port: [udp/53, tcp/53], guard: dns, track: false}"

// dnsTestCase is a row of the table.
type dnsTestCase struct {
	guard   guard
	flood   *flood
	site    *dnsSite
	missing string
	visits  []*dnsVisit
}

func (c *dnsTestCase) name() string { return rowName(c.flood, c.guard) }

func rowName(f *flood, g guard) string { return f.name + "/" + g.name }

// dnsBuilder makes the table of dns.
type dnsBuilder struct {
	rig.Builder
	queries string // a file of them
	cases   []*dnsTestCase
}

// measure takes all rounds, in which the cases take turns.
func (b *dnsBuilder) measure(ctx context.Context) error {
	b.Steps.Expect(b.Rounds * len(b.cases))
	for round := range b.Rounds {
		for _, c := range b.cases {
			b.Steps.Show("round %d of %d, %s, %s", round+1, b.Rounds, c.flood.label, c.guard.label)
			b.Steps.Step()
			if c.missing != "" {
				continue
			}
			v, err := c.site.visit(ctx, c.flood, b.queries, b.visitTime(), uint64(round)+1)
			var reason string
			if reason, err = rig.Tolerate(err); err != nil {
				return fmt.Errorf("%s, %s: %w", c.flood.label, c.guard.label, err)
			}
			if c.missing = reason; reason == "" {
				c.visits = append(c.visits, v)
			}
		}
	}
	return nil
}

// randomLabelAt is where a query has the second byte of its name's first label.
const randomLabelAt = 12 + 1 + 1

// visitTime is how long clients ask for at a time.
func (b *dnsBuilder) visitTime() time.Duration { return report.Choice(b.Quick, b.Phase*2/3, b.Phase) }

// dnsVisit is what came of some time of queries.
type dnsVisit struct {
	answers
	arrivals
	attack
	time     time.Duration // that the clients asked
	received uint64        // frames of the attacker's wire that reached the resolver's host
}

// floodEnd is how long before the clients the attacker ends, who begins with them: while dnsperf waits for the last
// answers, it takes all of the CPU that the attacker needs.
const floodEnd = 50 * time.Millisecond

// visit has the clients ask for so long, under a flood. Meanwhile, nothing of this process needs to run: all that does
// runs before it.
func (s *dnsSite) visit(ctx context.Context, f *flood, queries string, duration time.Duration, seed uint64) (*dnsVisit, error) {
	v := &dnsVisit{time: time.Duration(wholeSeconds(duration)) * time.Second}
	a, err := s.attacker(f, v.time-floodEnd, seed)
	if err != nil {
		return nil, err
	}
	defer a.close()
	if f.names { // clients have asked before, as clients do
		earlier, err := startClients(s.clients.Host, queries, time.Second)
		if err != nil {
			return nil, err
		}
		if _, err := earlier.answers(ctx); err != nil {
			return nil, err
		}
	}
	before, err := s.look()
	if err != nil {
		return nil, err
	}
	asking, err := startClients(s.clients.Host, queries, v.time)
	if err != nil {
		return nil, err
	}
	v.attack, err = a.run(ctx)
	var failed error
	v.answers, failed = asking.answers(ctx)
	after, looked := s.look()
	if err := errors.Join(err, failed, looked); err != nil {
		return nil, err
	}
	v.received = after.received - before.received
	v.arrivals = arrivals{
		after.others - before.others, after.othersBytes - before.othersBytes, after.truncated - before.truncated,
	}
	return v, ctx.Err()
}

// snapshot is the state of all counters at a moment.
type snapshot struct {
	arrivals
	received uint64
}

func (s *dnsSite) look() (l snapshot, err error) {
	if l.received, err = s.In.Received(); err != nil {
		return l, err
	}
	l.arrivals, err = readArrivals(s.victim)
	return l, err
}

// attack is what an attacker sent.
type attack struct {
	flood uint64 // queries
	bytes uint64 // their frames'
	took  time.Duration
}

// attacker is a flood that is ready; without a source, it is none.
type attacker struct {
	source *lab.Source
	frame  int // bytes
}

// attacker prepares a flood of some time.
func (s *dnsSite) attacker(f *flood, duration time.Duration, seed uint64) (a attacker, err error) {
	if f.from == "" {
		return a, nil
	}
	query, random := queryFor(bigName, typeANY), 0
	if f.names {
		query, random = queryFor("x--------."+zoneName, typeA), randomLabelAt
	}
	a.frame = 14 + 20 + 8 + len(query)
	a.source, err = s.Lab.NewSource(s.Out, lab.SourceOptions{
		Flows: []lab.Flow{{
			From: lab.MustAddrs(f.from), To: lab.Addr(rig.Server4), SPort: lab.AnyPort, DPort: lab.Port(resolverAt.Port()),
			Payload: query, RandomID: true, Random: random,
		}},
		CPU: rig.SourceCPU, Rate: f.rate, CatchUp: rig.FloodCatchUp, Count: uint64(f.rate * duration.Seconds()), Seed: seed, Urgent: true,
	})
	return a, err
}

// run sends the flood, and returns when it is over.
func (a *attacker) run(ctx context.Context) (attack, error) {
	if a.source == nil {
		return attack{}, nil
	}
	err := a.source.Run(ctx)
	sent := a.source.Sent()
	return attack{sent, sent * uint64(a.frame), a.source.Took()}, err
}

func (a *attacker) close() {
	if a.source != nil {
		a.source.Close()
	}
}
