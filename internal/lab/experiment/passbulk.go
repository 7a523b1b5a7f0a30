package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// untuned measures what a firewall leaves of one connection's throughput on a plain veth, whose offloads are the kernel's own.
func untuned(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) (err error) {
		b := &untunedBuilder{Builder: rig.Builder{Session: s, Lab: l}}
		defer b.Close()
		for _, c := range untunedCases() {
			if !s.Wants(c.row(toServer)) && !s.Wants(c.row(toClient)) {
				continue
			}
			if c.missing, err = b.SetUp(c.label, func() error { return b.prepare(ctx, c) }); err != nil {
				return err
			}
			b.rows = append(b.rows, c)
		}
		defer b.publish() // what there is, also when the rest cannot be measured
		label := func(c *untunedCase) string { return "bulk on a plain veth, " + c.label }
		return rig.InTurns(s, b.rows, label, func(_ int, c *untunedCase) error { return b.take(ctx, c) })
	})
}

// untunedBuilder makes the table of bulk on a plain veth.
type untunedBuilder struct {
	rig.Builder
	rows []*untunedCase
}

// untunedCase is a row: what the segments pass on their way into the host.
type untunedCase struct {
	name, label string
	apply       *control.ApplyOptions // of Floodwall; nil: install
	install     func(context.Context, *passSite) error

	site    *rig.Site
	missing string
	moved   [bulkWays]report.Samples // bytes per second
}

func (c *untunedCase) row(way bulkWay) string { return "untuned/" + way.name() + "/" + c.name }

// tcPass is the row of a program that passes everything, at tc.
const tcPass = "tc-pass"

// untunedCases are the rows. The first is what the others are compared with.
func untunedCases() []*untunedCase {
	xdp := func(mode datapath.Mode) *control.ApplyOptions {
		return &control.ApplyOptions{Target: plan.TargetXDP, Mode: mode}
	}
	return []*untunedCase{
		{name: bulkOpen, label: "no firewall", install: func(context.Context, *passSite) error { return nil }},
		{name: tcPass, label: "a tc program that passes", install: attachTC},
		{name: bulkPass, label: "empty XDP_PASS", install: attachPass},
		{name: "floodwall/xdp/native", label: "floodwall, xdp, native", apply: xdp(datapath.Native)},
		{name: "floodwall/xdp/generic", label: "floodwall, xdp, generic", apply: xdp(datapath.Generic)},
		{name: "floodwall/nftables", label: "floodwall, nftables", apply: &control.ApplyOptions{Target: plan.TargetNftables}},
		{name: "nft/conntrack", label: "nft: ct state established", install: func(ctx context.Context, at *passSite) error {
			return at.nft(ctx, "", "ct state established,related accept\ntcp dport 80 accept\n")
		}},
	}
}

// untunedPolicy has the connection's port among its services.
var untunedPolicy = fmt.Sprintf(passServices, ", {name: web, port: tcp/80}")

// prepare builds the site of a row.
func (b *untunedBuilder) prepare(ctx context.Context, c *untunedCase) (err error) {
	b.Sites++
	plain := lab.EndOptions{Untuned: true}
	if c.site, err = rig.ConnectSite(b.Lab, b.Sites, plain, plain); err != nil {
		return err
	}
	if c.apply == nil {
		return c.install(ctx, &passSite{sinkSite: sinkSite{Site: c.site}})
	}
	_, err = b.HoldWith(ctx, c.site, untunedPolicy, *c.apply)
	return err
}

// attachTC attaches a program that passes everything at tc.
func attachTC(_ context.Context, at *passSite) error {
	const next = -1 // TCX_NEXT of linux/bpf.h
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "pass", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, next), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("program at tc: %w", err)
	}
	defer p.Close()
	err = at.Lab.AttachTC(at.In, p)
	if errors.Is(err, ebpf.ErrNotSupported) {
		return &rig.Missing{Reason: "this kernel has no TCX (Linux 6.6)"}
	}
	return err
}

// take takes one round of a row.
func (b *untunedBuilder) take(ctx context.Context, c *untunedCase) error {
	if c.missing != "" {
		return nil
	}
	path := &streamPath{
		from: c.site.Out.Host, to: c.site.Server, at: netip.AddrPortFrom(rig.Server4, 80), cpus: [2]int{rig.SourceCPU, rig.ReceiverCPU},
	}
	for way := range bulkWays {
		moved, _, err := path.transfer(ctx, way == toClient, bulkBytes(b.Session))
		if err != nil {
			return err
		}
		c.moved[way] = append(c.moved[way], moved)
	}
	return ctx.Err()
}

// publish adds the table and the results to the outcome.
func (b *untunedBuilder) publish() {
	t := &report.Table{
		Title: "pass: bulk through a plain veth, with the kernel's own offloads",
		Head:  []string{"", "into the host, MB/s", "of no firewall", "out of it, MB/s", "of no firewall", ""},
		Notes: []string{
			fmt.Sprintf("One connection, %d MB each way, as in a container or on a virtual bridge that nobody has tuned: segments of up to 64 kB come whole.",
				bulkBytes(b.Session)>>20),
			"An XDP program on veth costs that: the kernel segments and copies them. Other tables have offloads off at both ends, in all rows.",
			"The remedy today is `--target nftables`, or `--mode generic` where that row is better.",
			fmt.Sprintf("Medians of %d rounds, in which the rows take turns; shares are of the same round.", b.Rounds),
		},
	}
	for _, c := range b.rows {
		cells := []string{c.label, "", "", "", "", c.missing}
		for way := range bulkWays {
			if !b.Wants(c.row(way)) {
				continue
			}
			r := lab.Result{Name: b.Outcome.Name + "/" + c.row(way), Runs: len(c.moved[way]), Note: c.missing}
			if r.Runs > 0 {
				cells[1+2*way] = megabytes(c.moved[way], &r, "MB/s")
				cells[2+2*way] = b.share(c, way, &r)
			}
			b.Outcome.Results = append(b.Outcome.Results, r)
		}
		t.AddRow(cells...)
	}
	b.Outcome.Tables = append(b.Outcome.Tables, t)
}

// share is a row's throughput by that of the first row in the same rounds, as text. It adds it to the result.
func (b *untunedBuilder) share(c *untunedCase, way bulkWay, r *lab.Result) string {
	open := b.rows[0]
	if open == c || open.name != bulkOpen {
		return ""
	}
	by := c.moved[way].By(open.moved[way])
	if len(by) == 0 {
		return ""
	}
	r.Metrics = append(r.Metrics, by.Metric("of-open"))
	return fmt.Sprintf("%.3f", by.Median())
}
