package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/lab"
)

// packetCost measures what one packet costs, case by case as an article did in 2016, with the article's tool, with Floodwall
// on each target, and with the least that there can be.
func packetCost(ctx context.Context, s *session) error {
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
		s.outcome.Claims = costOutcome(one)
		return nil
	})
}

// costNotes are the choices made where the article is silent.
var costNotes = []string{
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

// The flow of the article: one source and one destination, address and port.
var (
	costSource = netip.MustParseAddr("10.0.0.1")
	costFlow   = lab.Flow{
		From: lab.Addr(costSource), To: lab.Addr(server4), SPort: lab.Port(4000), DPort: lab.Port(sinkPort), Size: 14 + 128,
	}
)

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
	row := &rate{name: "iptables/" + c.name, label: "iptables: " + c.label, article: c.article}
	err := b.fill(ctx, row, c, func(at *site) error { return c.install(ctx, at) })
	if err != nil {
		return err
	}
	switch c.name {
	case baseCase:
		b.table.base = row
	case rivalCase:
		b.table.rival = row
	}
	if c.policy == nil {
		b.add(&rate{name: "floodwall/" + c.name, label: "floodwall: " + c.ownLabel(), missing: c.lacks})
		return nil
	}
	for _, target := range costTargets {
		row := &rate{name: "floodwall/" + target + "/" + c.name, label: "floodwall, " + target + ": " + c.ownLabel()}
		if err := b.addTarget(ctx, row, c, target); err != nil {
			return fmt.Errorf("floodwall, %s: %w", target, err)
		}
	}
	return nil
}

// addTarget adds the row of a case for a target, without figures when it cannot do that.
func (b *costBuilder) addTarget(ctx context.Context, row *rate, c costCase, target string) error {
	if row.missing = c.cannot[target]; row.missing != "" {
		b.add(row)
		return nil
	}
	if target == "xdp" {
		row.least, row.times = c.least, c.times
	}
	return b.addFloodwall(ctx, row, c, target)
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

// text is a policy that needs no file.
func text(policy string) func() (string, func(), error) {
	return func() (string, func(), error) { return policy, func() {}, nil }
}
