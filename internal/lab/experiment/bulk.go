package experiment

import (
	"context"
	"fmt"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// bulk measures what a protection leaves of the throughput of one connection that stands, without a flood.
func bulk(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) (err error) {
		b := &bulkBuilder{synproxyBuilder: synproxyBuilder{Builder: rig.Builder{Session: s, Lab: l}}}
		defer b.Close()
		for _, c := range bulkCases() {
			if len(c.wanted(s)) == 0 {
				continue
			}
			if c.missing, err = b.SetUp(c.label, func() error { return b.prepare(ctx, c) }); err != nil {
				return fmt.Errorf("bulk transfer, %w", err)
			}
			b.rows = append(b.rows, c)
		}
		defer b.publish() // what there is, also when the rest cannot be measured
		return b.measure(ctx)
	})
}

// bulkBuilder makes the table of bulk transfers.
type bulkBuilder struct {
	synproxyBuilder
	rows []*bulkCase
}

// bulkCase is a row: what the segments of a connection pass.
type bulkCase struct {
	kind, name string // what there is, and where: "floodwall", "floodwall/host"
	label      string
	behind     bool // the server is behind the host that protects
	install    installer
	bar        float64 // the least share of the throughput with a program that passes everything; 0: none is asked for

	site    *synproxySite
	server  *lab.Host
	missing string
	ways    [bulkWays]bulkFigures
}

// bulkWay is where the bytes go. Those to the server pass XDP, which sees the acknowledgements only of the others.
type bulkWay int

const (
	toServer bulkWay = iota
	toClient
	bulkWays
)

// name is the way as a part of a result's name; label as people read it.
func (w bulkWay) name() string { return report.Choice(w == toServer, "to-server", "to-client") }
func (w bulkWay) label() string {
	return report.Choice(w == toServer, "to the server", "to the client")
}

// row is what a way of the case is called.
func (c *bulkCase) row(w bulkWay) string { return "bulk/" + w.name() + "/" + c.name }

// wanted are the ways that are measured.
func (c *bulkCase) wanted(s *rig.Session) (ways []bulkWay) {
	for w := range bulkWays {
		if s.Wants(c.row(w)) {
			ways = append(ways, w)
		}
	}
	return ways
}

// bulkFigures are those of one way, a figure of each round, in bytes per second: while the transfer lasted, and of the
// time of the CPU that had most to do with it.
type bulkFigures struct{ rate, able report.Samples }

// bulkBar is the least share for the host mode, which leaves the connection to the kernel's stack as it was negotiated.
const bulkBar = 0.98

// The kinds of rows that others are compared with.
const (
	bulkOpen = "open"
	bulkPass = "xdp-pass"
)

// bulkCases are the rows.
func bulkCases() (all []*bulkCase) {
	for _, at := range []struct {
		mode, chain string
		bar         float64
	}{{"host", "INPUT", bulkBar}, {"router", "FORWARD", 0}} {
		for _, c := range []*bulkCase{
			{kind: bulkOpen, label: "nothing", install: bulkNothing},
			{kind: bulkPass, label: "XDP_PASS", install: labProgram(lab.PassAll)},
			{kind: "synproxy", label: "kernel SYNPROXY", install: kernelSynproxy(at.chain)},
			{kind: "floodwall-off", label: "floodwall, syn: off", install: bulkUnprotected},
			{kind: "floodwall", label: "floodwall", install: protect(at.mode), bar: at.bar},
		} {
			c.name, c.label, c.behind = c.kind+"/"+at.mode, c.label+", "+at.mode, at.mode == "router"
			all = append(all, c)
		}
	}
	return all
}

// bulkNothing leaves the connection alone.
func bulkNothing(context.Context, *synproxyBuilder, *synproxySite) error { return nil }

// bulkUnprotected applies a policy that passes the connection.
func bulkUnprotected(ctx context.Context, b *synproxyBuilder, at *synproxySite) error {
	_, err := b.Hold(ctx, at.Site, "default: drop\nservices:\n  - {name: web, port: tcp/80}\n", "xdp")
	return err
}

// bulkBytes is how many go over a connection.
func bulkBytes(s *rig.Session) int64 { return report.Choice[int64](s.Quick, 64<<20, 1<<30) }

// measure takes all rounds, in which the rows take turns.
func (b *bulkBuilder) measure(ctx context.Context) error {
	label := func(c *bulkCase) string { return "bulk transfer, " + c.label }
	return rig.InTurns(b.Session, b.rows, label, func(_ int, c *bulkCase) error { return b.take(ctx, c) })
}

// take takes one round of a row.
func (b *bulkBuilder) take(ctx context.Context, c *bulkCase) error {
	if c.missing != "" {
		return nil
	}
	for _, way := range c.wanted(b.Session) {
		rate, able, err := c.path().transfer(ctx, way == toClient, bulkBytes(b.Session))
		if err != nil {
			return err
		}
		figures := &c.ways[way]
		figures.rate, figures.able = append(figures.rate, rate), append(figures.able, able)
	}
	return ctx.Err()
}
