// This file is the experiment of that name: a UDP service and its clients under a flood of datagrams of its own kind.

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

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// runUDP measures a UDP service while an attacker sends it datagrams from random sources: what clients get whom it has answered for a while,
// what those get who come during the flood, and what protection costs while there is none.
func runUDP(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) error {
		b := &udpBuilder{Builder: rig.Builder{Session: s, Lab: l}}
		defer b.Close()
		for _, g := range udpGuards() {
			var loads []*udpLoad
			for _, l := range udpLoads {
				if b.Wants(l.name+"/"+g.name) && (l.busy == 0 || g.quiet) {
					loads = append(loads, l)
				}
			}
			if len(loads) == 0 {
				continue
			}
			var at *udpSite
			missing, err := b.SetUp(g.label, func() (err error) {
				at, err = newUDPSite(ctx, &b.Builder, g)
				return err
			})
			if err != nil {
				return err
			}
			for _, l := range loads {
				b.cases = append(b.cases, &udpCase{guard: g, load: l, site: at, missing: missing})
			}
		}
		defer b.publish() // what there is, also when the rest cannot be measured
		return b.measure(ctx)
	})
}

// udpPort is the service's.
const udpPort = 7000

// Clients: so many, each of which sends 20 datagrams a second, as players and peers do. The newcomers of a flood are another 200, which come once,
// and wait for newcomerTime.
const (
	udpClients   = 200
	udpRate      = 20 * udpClients
	meetRate     = udpClients // while the service comes to know them: no flood
	newcomerRate = 5 * udpClients
	newcomerTime = 3 * time.Second
	udpTimeout   = time.Second
	firstClient  = 20_000 // the port of the first client
)

// udpLoad is what is measured.
type udpLoad struct {
	name, label string
	flood       float64 // packets per second
	busy        int     // clients that send as fast as they get answers; 0: all send at udpRate
}

var (
	udpQuiet = &udpLoad{name: "quiet", label: "no flood"}
	udpBusy  = &udpLoad{name: "busy", label: "no flood, a datagram at each answer", busy: udpClients}
	udpFlood = &udpLoad{name: "flood", label: "1 Mpps of random sources", flood: barFlood}
	udpLoads = []*udpLoad{udpQuiet, udpBusy, udpFlood}
)

// udpGuard is what protects the service.
type udpGuard struct {
	name, label string
	protocol    string // of datagrams, one of rig.UDPServices
	policy      string // of Floodwall; "": another's rules
	rules       string // of nft, or of iptables when they begin with a table
	quiet       bool   // it is measured as fast as the service answers, too
	rival       bool   // it is what rows of Floodwall without a flood are compared with
}

// The rows. A limit by source that a player keeps has 40 packets per second.
func udpGuards() []udpGuard {
	all := []udpGuard{
		{name: "nothing", label: "nothing", protocol: "generic", quiet: true},
		{
			name: "nft", label: "nft, 40/s per source (dynamic set)", protocol: "generic",
			rules: fmt.Sprintf(`table ip guard {
	set per { type ipv4_addr; size 65536; flags dynamic,timeout; timeout 10s; }
	chain prerouting { type filter hook prerouting priority raw; udp dport %d update @per { ip saddr limit rate over 40/second burst 40 packets } drop; }
}
`, udpPort),
		},
		{
			name: "hashlimit", label: "iptables hashlimit, 40/s per source", protocol: "generic",
			rules: fmt.Sprintf("*raw\n-A PREROUTING -p udp --dport %d -m hashlimit --hashlimit-above 40/sec --hashlimit-burst 40 --hashlimit-mode srcip"+
				" --hashlimit-htable-max 65536 --hashlimit-htable-expire 10000 --hashlimit-name game -j DROP\nCOMMIT\n", udpPort),
		},
		{
			name: "floodwall/rule", label: "floodwall, a rule that names the flood's sources (upper bound)", protocol: "generic",
			policy: udpPolicy("") + "rules: [{from: " + floodSources + ", then: drop}]\n",
		},
		{name: "floodwall/off", label: "floodwall, without udp", protocol: "generic", policy: udpPolicy(""), quiet: true, rival: true},
	}
	for _, u := range udpServices() {
		all = append(all, udpGuard{
			name: "floodwall/" + u.Protocol, label: "floodwall, protect: " + u.Protocol, protocol: u.Protocol,
			policy: udpPolicy(", udp: {protect: " + u.Protocol + "}"), quiet: true,
		})
	}
	return all
}

// udpServices are those of all protocols.
func udpServices() []rig.UDPService {
	return slices.Concat(rig.UDPServices, []rig.UDPService{rig.GameServer, rig.RakNetServer})
}

// udpPolicy is Floodwall's, without its devices.
func udpPolicy(protection string) string {
	return fmt.Sprintf("default: drop\nservices: [{name: game, port: udp/%d%s}]\n", udpPort, protection)
}

// udpSite is a service behind one of the guards.
type udpSite struct {
	*floodedSite
	service rig.UDPService
	server  netip.AddrPort
	knows   bool // it has to come to know its clients
}

// newUDPSite builds another site, whose service ends with the builder.
func newUDPSite(ctx context.Context, b *rig.Builder, g udpGuard) (s *udpSite, err error) {
	s = &udpSite{server: netip.AddrPortFrom(rig.Server4, udpPort)}
	for _, u := range udpServices() {
		if u.Protocol == g.protocol {
			s.service = u
		}
	}
	if s.floodedSite, err = newFloodedSite(b, rig.Server4); err != nil {
		return nil, err
	}
	stop, err := b.Lab.NewEchoProcess(s.Server, s.server, rig.ReceiverCPU, lab.Ordinary)
	if err != nil {
		return nil, err
	}
	b.Owned = append(b.Owned, stop)
	switch {
	case g.policy != "":
		s.knows = strings.Contains(g.policy, "udp: {")
		_, err = b.Hold(ctx, s.Site, g.policy, "xdp")
	case strings.HasPrefix(g.rules, "*"):
		_, _, err = rig.RunTool(ctx, s.Server, strings.NewReader(g.rules), "iptables-legacy-restore")
	case g.rules != "":
		_, _, err = rig.RunTool(ctx, s.Server, strings.NewReader(g.rules), "nft", "-f", "-")
	}
	return s, err
}

// talk has the known clients talk.
func (s *udpSite) talk(ctx context.Context, rate float64, duration time.Duration) (lab.TalkSummary, error) {
	return s.talkFrom(ctx, clientAddrs(), lab.TalkOptions{Payload: rig.MustPayload(cmp.Or(s.service.Has, s.service.Lacks)), Rate: rate, Duration: duration})
}

// come has those who come at the n-th visit send what they begin with. Where there is a proof, they give it.
func (s *udpSite) come(ctx context.Context, n int) (lab.TalkSummary, error) {
	o := lab.TalkOptions{Rate: newcomerRate, Duration: newcomerTime}
	if s.service.Opens != "" {
		o.Join = rig.MustPayload(s.service.Opens)
	} else {
		o.Payload = rig.MustPayload(s.service.Begins)
	}
	return s.talkFrom(ctx, newcomers(n), o)
}

// newcomers are the addresses of those who come at the n-th visit: others in the networks of the known clients.
func newcomers(n int) (from []netip.Addr) {
	for _, a := range clientAddrs() {
		b := a.As4()
		b[3] = byte(2 + n%250)
		from = append(from, netip.AddrFrom4(b))
	}
	return from
}

// talkFrom has clients with some addresses talk.
func (s *udpSite) talkFrom(ctx context.Context, from []netip.Addr, o lab.TalkOptions) (lab.TalkSummary, error) {
	o.Host, o.Server, o.From, o.Clients, o.Port = s.clients.Host, s.server, from, udpClients, firstClient
	o.Timeout, o.CPU, o.Urgent = udpTimeout, rig.SourceCPU, true
	return lab.Talk(ctx, o)
}

// flows are the flood: of the protocol's shape, without an identifier that the service has issued. Half of them are first packets, unless those
// are too long for a mix.
func (s *udpSite) flows() []lab.Flow {
	follow, begin := udpFlow(s.service.Lacks), udpFlow(cmp.Or(s.service.Opens, s.service.Begins))
	if len(begin.Payload) > lab.MostMixed {
		return []lab.Flow{follow}
	}
	follow.Weight, begin.Weight = 0.5, 0.5
	return []lab.Flow{follow, begin}
}

// udpBuilder makes the tables of udp.
type udpBuilder struct {
	rig.Builder
	cases  []*udpCase
	met    time.Time // when all clients talked last
	visits int       // of newcomers
}

// measure takes all rounds, in which the cases take turns: those without a flood first. Clients talk before both. Then floods are forgotten, by
// Floodwall and by the tables of the others.
func (b *udpBuilder) measure(ctx context.Context) error {
	b.Steps.Expect(b.Rounds * len(b.cases))
	for round := range b.Rounds {
		flooded := false
		for _, flood := range []bool{false, true} {
			cases := slices.DeleteFunc(rig.Alternated(b.cases, round), func(c *udpCase) bool { return c.load.flood > 0 != flood })
			if len(cases) == 0 {
				continue
			}
			if err := b.meet(ctx); err != nil { // what comes before may take longer than a known client is remembered
				return err
			}
			for _, c := range cases {
				b.Steps.Show("round %d of %d, %s", round+1, b.Rounds, c.label())
				b.Steps.Step()
				if err := b.take(ctx, c); err != nil {
					return fmt.Errorf("%s: %w", c.label(), err)
				}
			}
			flooded = flooded || flood
		}
		if !flooded || round+1 == b.Rounds {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(ir.FloodTime + time.Second):
		}
	}
	return nil
}

// udpCase is a row.
type udpCase struct {
	guard   udpGuard
	load    *udpLoad
	site    *udpSite
	missing string
	visits  []*udpVisit
}

func (c *udpCase) name() string  { return c.load.name + "/" + c.guard.name }
func (c *udpCase) label() string { return c.load.label + ": " + c.guard.label }

// udpVisit is what came of some time.
type udpVisit struct {
	lab.TalkSummary
	newcomers lab.TalkSummary
	flood     float64 // packets per second of the attacker that the host took
}

// meetTime is how long clients talk until they are known, and greetTime how long so that they are not forgotten.
const (
	meetTime  = (ir.KnownTimes + 1) * ir.KnownUnit
	greetTime = 3 * time.Second
)

// meet has the clients of all services talk for a while, without a flood.
func (b *udpBuilder) meet(ctx context.Context) error {
	lasts := meetTime
	if time.Since(b.met) < ir.KnownLife/2 {
		lasts = greetTime
	}
	met := map[*udpSite]bool{}
	ended := make(chan error)
	for _, c := range b.cases {
		if c.missing != "" || met[c.site] {
			continue
		}
		met[c.site] = true
		go func() {
			s, err := c.site.talk(ctx, meetRate, lasts)
			if err == nil && c.site.service.Opens != "" {
				_, err = c.site.come(ctx, 0) // Floodwall learns from the answers what the server is
			}
			if err == nil && s.Clients < udpClients {
				err = fmt.Errorf("%s: %d of %d clients had an answer without a flood", c.guard.label, s.Clients, udpClients)
			}
			ended <- err
		}()
	}
	var failed error
	for range met {
		failed = errors.Join(failed, <-ended)
	}
	b.met = time.Now()
	return failed
}

// take takes a round of a case. A visit that was disturbed is taken again; of those that all were, the last counts.
func (b *udpBuilder) take(ctx context.Context, c *udpCase) error {
	if c.missing != "" {
		return nil
	}
	var v *udpVisit
	for range b.Tries() {
		var err error
		v, err = b.visit(ctx, c)
		var reason string
		if reason, err = rig.Tolerate(err); err != nil {
			return err
		}
		if c.missing = reason; reason != "" {
			return nil
		}
		if max(v.Stalled, v.newcomers.Stalled) <= mostStalled {
			break
		}
	}
	c.visits = append(c.visits, v)
	return nil
}

// udpVisitTime is how long clients talk at a time.
func udpVisitTime(s *rig.Session) time.Duration {
	return report.Choice(s.Quick, s.Phase/6, s.Phase/2)
}

// visit has the clients talk once, and during a flood newcomers beside them.
func (b *udpBuilder) visit(ctx context.Context, c *udpCase) (v *udpVisit, err error) {
	s, rate := c.site, float64(udpRate)
	if c.load.busy > 0 {
		rate = 0
	}
	if c.load.flood == 0 {
		v = &udpVisit{}
		v.TalkSummary, err = s.talk(ctx, rate, udpVisitTime(b.Session))
		return v, err
	}
	b.visits++
	stop, err := s.begin(ctx, s.flows(), c.load.flood, uint64(b.visits))
	if err != nil {
		return nil, err
	}
	v = &udpVisit{}
	v.TalkSummary, err = s.talk(ctx, rate, udpVisitTime(b.Session))
	if err == nil {
		v.newcomers, err = s.come(ctx, b.visits)
	}
	mean, _, stopped := stop()
	v.flood = mean
	if err == nil {
		err = stopped
	}
	return v, err
}
