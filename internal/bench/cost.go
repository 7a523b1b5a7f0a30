package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/lab"
)

// cost measures what one packet costs, case by case as an article did in 2016, with the article's tool, with Floodwall
// on each target, and with the least that there can be.
func cost(ctx context.Context, s *session) error {
	return inLab(ctx, func(l *lab.Lab) error {
		b := &costBuilder{builder: builder{session: s, lab: l, flow: costFlow}}
		defer b.close()
		b.table.title = "cost: 128-byte UDP packets from one address and port to another"
		b.table.notes = append([]string(nil), costNotes...)
		if err := b.build(ctx); err != nil {
			return err
		}
		two, one := &b.table, b.table.on(oneCore)
		if err := two.measure(ctx, s); err != nil {
			return err
		}
		if err := one.measure(ctx, s); err != nil {
			return err
		}
		s.outcome.Tables = append(s.outcome.Tables, claimsTable(one))
		return nil
	})
}

// costNotes are the choices made where the article is silent.
var costNotes = []string{
	"Article: Strongarm 2016, one core of a small EC2 instance, Linux 4.4. Its tool is iptables: here, iptables-legacy.",
	"A packet of 128 bytes is one whose IP header says so: a frame of 142. Accepted packets go to a socket that nobody",
	"reads, where they are discarded once its buffer is full. The rule that drops is for UDP to port 53. The source is in",
	"the sets; the strings are not in the packets, which the next rule drops; hashlimit accepts 1000/s of each /16 and the",
	"next rule drops the rest. Floodwall's policies have checks: off, as iptables has none, and it chooses the stages.",
	"Cost: time per packet above that of iptables' drop in raw. For accepting with conntrack, the article's 20% is above",
	"accepting without.",
}

// The flow of the article: one source and one destination, address and port.
var (
	costSource = netip.MustParseAddr("10.0.0.1")
	costFlow   = lab.Flow{
		From: lab.Addr(costSource), To: lab.Addr(server4), SPort: lab.Port(4000), DPort: lab.Port(sinkPort), Size: 14 + 128,
	}
)

// sinkPort is where all packets go.
const sinkPort = 53

// costBuilder makes the table of cost.
type costBuilder struct{ builder }

func (b *costBuilder) build(ctx context.Context) error {
	if err := b.limits(); err != nil {
		return err
	}
	for _, accepting := range []func() error{b.addPass, b.addNoFirewall} {
		if err := accepting(); err != nil {
			return err
		}
	}
	for _, c := range costCases() {
		if err := b.addCase(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", c.label, err)
		}
	}
	return nil
}

// addPass adds the limit of accepting with a program attached.
func (b *costBuilder) addPass() error {
	at, err := b.sinkSite()
	if err != nil {
		return err
	}
	p, err := loadAsm("pass", asm.Mov.Imm(asm.R0, xdpPass), asm.Return())
	if err != nil {
		return err
	}
	b.add(&rate{
		name: "pass", label: "empty XDP_PASS, no firewall (the limit of accepting)", subject: subject{at.site, b.own(p)},
	})
	return nil
}

// xdpPass is XDP_PASS of linux/bpf.h.
const xdpPass = 2

func (b *costBuilder) addNoFirewall() error {
	at, err := b.sinkSite()
	if err == nil {
		b.add(&rate{name: "accept", label: "accept, no firewall", subject: subject{site: at.site}})
	}
	return err
}

// addCase adds the rows of a case: with iptables, and with Floodwall on each target.
func (b *costBuilder) addCase(ctx context.Context, c costCase) error {
	row := &rate{name: "iptables/" + c.name, label: "iptables: " + c.label, article: &c.article}
	err := b.fill(ctx, row, c, func(at *site) error { return c.install(ctx, at) })
	if err != nil {
		return err
	}
	if c.name == baseCase {
		b.table.base = row
	}
	if c.policy == nil {
		b.add(&rate{name: "floodwall/" + c.name, label: "floodwall: " + c.ownLabel(), missing: c.lacks})
		return nil
	}
	for _, target := range costTargets {
		row := &rate{name: "floodwall/" + target + "/" + c.name, label: "floodwall, " + target + ": " + c.ownLabel()}
		if err := b.addFloodwall(ctx, row, c, target); err != nil {
			return fmt.Errorf("floodwall, %s: %w", target, err)
		}
	}
	return nil
}

// fill adds a row for what is installed at a site of its own, after a look at what becomes of packets there.
func (b *costBuilder) fill(ctx context.Context, row *rate, c costCase, install func(*site) error) error {
	b.progress.show("installing %s", row.label)
	at, err := b.sinkSite()
	if err != nil {
		return err
	}
	if row.missing, err = tolerate(install(at.site)); err != nil {
		return err
	}
	b.add(row)
	row.subject = subject{site: at.site}
	if row.missing != "" || c.some {
		return nil
	}
	return at.expect(ctx, c.accept)
}

// sinkSite is a site with a socket that nobody reads.
type sinkSite struct {
	*site
	sink net.PacketConn
}

func (b *costBuilder) sinkSite() (*sinkSite, error) {
	at, err := b.site()
	if err != nil {
		return nil, err
	}
	s := &sinkSite{site: at}
	err = at.server.Do(func() (err error) {
		s.sink, err = net.ListenPacket("udp4", netip.AddrPortFrom(server4, sinkPort).String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	b.owned = append(b.owned, s.sink.Close)
	return s, nil
}

// tested is how many packets tell what becomes of all.
const tested = 10

// expect sends some packets and returns an error when not all, or not none, arrive at the socket. What decides something
// else than it should is not worth measuring.
func (s *sinkSite) expect(ctx context.Context, accept bool) error {
	source, err := s.lab.NewSource(s.out, lab.SourceOptions{Flows: []lab.Flow{costFlow}, CPU: sourceCPU, Seed: 1, Count: tested, Rate: 1000})
	if err != nil {
		return err
	}
	if err := errors.Join(source.Run(ctx), source.Close()); err != nil {
		return err
	}
	want, wait := 0, 50*time.Millisecond
	if accept {
		want, wait = tested, 2*time.Second
	}
	if err := s.sink.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	got, octets := 0, make([]byte, 2048)
	for got < tested {
		if _, _, err := s.sink.ReadFrom(octets); err != nil {
			break // the deadline
		}
		got++
	}
	if got != want && ctx.Err() == nil {
		return fmt.Errorf("%d of %d packets are accepted, want %d", got, tested, want)
	}
	return ctx.Err()
}

// costCase is a line of the article's table.
type costCase struct {
	name, label string
	own         string // label with Floodwall; "": the same
	article     articleRow
	accept      bool // what becomes of the packets
	some        bool // some are accepted, others not
	install     func(context.Context, *site) error

	policy func() (text string, remove func(), err error) // of Floodwall, without devices; nil: it lacks something
	lacks  string                                         // why there is no policy
}

func (c *costCase) ownLabel() string { return choice(c.own == "", c.label, c.own) }

// articleRow is what the article says of a case.
type articleRow struct {
	kpps float64
	cost string // in its own words
}

// baseCase is the case that the others are compared with.
const baseCase = "raw"

const (
	dropRule   = "-p udp --dport 53 -j DROP\n"
	dropPolicy = "  - {name: flood, proto: udp, port: 53, then: drop}\n"
	costPolicy = "default: pass\nchecks: off\n"
)

// costCases are the lines of the article's table, in its order.
func costCases() []costCase {
	raw := func(rules string) func(context.Context, *site) error {
		return restoring("*raw\n" + rules + "COMMIT\n")
	}
	const stateful = "*filter\n-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\nCOMMIT\n"
	const needs = "payload and over are issue 4"
	cases := []costCase{
		{
			name: "accept/untracked", label: "accept, conntrack off", article: articleRow{106, ""}, accept: true,
			install: restoring("*raw\n-A PREROUTING -j CT --notrack\nCOMMIT\n" + stateful),
			policy:  text(costPolicy + "services: [{name: sink, port: udp/53, track: false}]\n"),
		},
		{
			name: "accept/tracked", label: "accept, conntrack on", article: articleRow{87, "20%"}, accept: true,
			install: restoring(stateful),
			policy:  text(costPolicy + "services: [{name: sink, port: udp/53, track: true}]\n"),
		},
		{
			name: baseCase, label: "drop, first rule in raw", own: "drop, first rule", article: articleRow{280, "baseline"},
			install: raw("-A PREROUTING " + dropRule), policy: text(costPolicy + "rules:\n" + dropPolicy),
		},
		{
			name: "filter", label: "drop, first rule in filter", article: articleRow{250, "12%"},
			install: restoring("*filter\n-A INPUT " + dropRule + "COMMIT\n"), lacks: "it chooses the stage itself: see drop, first rule",
		},
		{
			name: "raw/rules=5", label: "drop, after 5 rules that do not match", article: articleRow{250, "12%"},
			install: raw(iptablesRules("PREROUTING", 5) + "-A PREROUTING " + dropRule),
			policy:  text(costPolicy + policyRules(5) + dropPolicy),
		},
	}
	for _, n := range []int{1, 65_000, 265_000} {
		cases = append(cases, setCase(n))
	}
	for _, algo := range []struct {
		name string
		articleRow
	}{{"bm", articleRow{255, "10%"}}, {"kmp", articleRow{235, "17%"}}} {
		match := fmt.Sprintf("-A PREROUTING -p udp --dport 53 -m string --algo %s --string evil.example -j DROP\n", algo.name)
		cases = append(cases, costCase{
			name: "string/" + algo.name, label: "drop, after a string match (" + algo.name + ")", article: algo.articleRow,
			install: raw(match + "-A PREROUTING " + dropRule), lacks: needs,
		})
	}
	return append(cases, costCase{
		name: "hashlimit", label: "hashlimit, 1000/s per /16", article: articleRow{225, "20%"}, some: true, lacks: needs,
		install: raw("-A PREROUTING -p udp -m hashlimit --hashlimit-upto 1000/sec --hashlimit-mode srcip --hashlimit-srcmask 16" +
			" --hashlimit-name bench -j ACCEPT\n-A PREROUTING " + dropRule),
	})
}

// text is a policy that needs no file.
func text(policy string) func() (string, func(), error) {
	return func() (string, func(), error) { return policy, func() {}, nil }
}

// restoring has iptables take a script.
func restoring(script string) func(context.Context, *site) error {
	return func(ctx context.Context, at *site) error {
		_, _, err := runTool(ctx, at.server, strings.NewReader(script), "iptables-legacy-restore")
		return err
	}
}
