package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// outgoing measures what a firewall leaves of what a host asks for: a download over one connection, and short requests, a
// connection each.
func outgoing(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) (err error) {
		b := &outBuilder{Builder: rig.Builder{Session: s, Lab: l}}
		defer b.Close()
		for _, c := range outCases() {
			if !s.Wants(c.row()) {
				continue
			}
			if c.missing, err = b.SetUp(c.label, func() error { return b.prepare(ctx, c) }); err != nil {
				return err
			}
			b.rows = append(b.rows, c)
		}
		defer b.publish() // what there is, also when the rest cannot be measured
		return b.measure(ctx)
	})
}

// outBuilder makes the table of what a host asks for.
type outBuilder struct {
	rig.Builder
	rows []*outCase
}

// outCase is a row: what the answers pass.
type outCase struct {
	name, label string
	target      string // of Floodwall; "": install
	install     func(context.Context, *passSite) error
	bar         float64 // the least share of what there is with a program that passes everything; 0: none is asked for

	site    *rig.Site
	missing string
	figures [outFigures]report.Samples
}

func (c *outCase) row() string { return "out/" + c.name }

// What is measured of each row.
const (
	outMoved    = iota // bytes per second of the download
	outAble            // and of the time of the CPU that has most to do
	outRequests        // per second
	outP99             // nanoseconds of a request
	outFigures
)

// outBar is the least share of the download and of the requests.
const outBar = 0.98

// outCases are the rows.
func outCases() (all []*outCase) {
	all = append(all,
		&outCase{name: bulkOpen, label: "no firewall", install: func(context.Context, *passSite) error { return nil }},
		&outCase{name: bulkPass, label: "empty XDP_PASS", install: attachPass})
	for _, target := range targets {
		c := &outCase{name: "floodwall/" + target, label: "floodwall, " + target, target: target}
		if target == "xdp" {
			c.bar = outBar
		}
		all = append(all, c)
	}
	return append(all,
		&outCase{name: "nft/conntrack", label: "nft: ct state established", install: passNft},
		&outCase{name: "iptables/conntrack", label: "iptables: ctstate ESTABLISHED", install: passIptables})
}

// outServer is where the host asks.
var outServer = netip.MustParseAddrPort("10.0.0.1:80")

// outAnswer is how many bytes the server answers.
const outAnswer = len("here\n")

// prepare builds the site of a row.
func (b *outBuilder) prepare(ctx context.Context, c *outCase) (err error) {
	b.Sites++
	out := rig.OtherEnd
	out.Queue = true // or segments are lost where a burst finds no place
	if c.site, err = rig.ConnectSite(b.Lab, b.Sites, out, rig.ServerEnd); err != nil {
		return err
	}
	server, err := rig.StartPlainNginx(ctx, c.site.Out.Host, rig.SourceCPU, outServer)
	if err != nil {
		return err
	}
	b.Owned = append(b.Owned, server.Close)
	if c.install != nil {
		return c.install(ctx, &passSite{sinkSite: sinkSite{Site: c.site}})
	}
	_, err = b.Hold(ctx, c.site, fmt.Sprintf(passServices, ""), c.target)
	return err
}

// measure takes all rounds, in which the rows take turns.
func (b *outBuilder) measure(ctx context.Context) error {
	label := func(c *outCase) string { return "download and requests, " + c.label }
	return rig.InTurns(b.Session, b.rows, label, func(_ int, c *outCase) error { return b.take(ctx, c) })
}

// requests is how many make a round.
func (b *outBuilder) requests() int { return report.Choice(b.Quick, 1000, 10_000) }

// take takes one round of a row.
func (b *outBuilder) take(ctx context.Context, c *outCase) error {
	if c.missing != "" {
		return nil
	}
	path := &streamPath{
		from: c.site.Server, to: c.site.Out.Host, at: netip.AddrPortFrom(outServer.Addr(), 8080), cpus: [2]int{rig.ReceiverCPU, rig.SourceCPU},
		devices: [2][]*lab.Device{{c.site.In}, {c.site.Out}},
	}
	moved, able, err := path.transfer(ctx, true, bulkBytes(b.Session))
	if err != nil {
		return err
	}
	n := b.requests()
	times, err := lab.Serial(ctx, lab.SerialOptions{
		Host: c.site.Server, Server: outServer, Body: outAnswer, Requests: n, Warmup: warmup, CPU: rig.ReceiverCPU, Urgent: true,
	})
	if err != nil {
		return err
	}
	whole := times.Whole.Latency()
	for i, v := range [outFigures]float64{moved, able, float64(time.Second) / float64(whole.Mean), float64(whole.P99)} {
		c.figures[i] = append(c.figures[i], v)
	}
	return nil
}

// publish adds the table, the results and the bars to the outcome.
func (b *outBuilder) publish() {
	t := &report.Table{
		Title: "pass: what a host asks for",
		Head:  []string{"", "MB/s", "of no firewall", "of XDP_PASS", "bar", "able", "of XDP_PASS", "requests/s", "of no firewall", "of XDP_PASS", "bar", "p99 us", ""},
		Notes: []string{
			fmt.Sprintf("A download of %d MB over one connection, and %s requests, one after another, a connection each. The host drops by default,",
				bulkBytes(b.Session)>>20, report.CountText(b.requests())),
			fmt.Sprintf("and has no rule for answers. CPU %d has the host, CPU %d the server. Able: bytes per second of the time of the CPU that has most", rig.ReceiverCPU, rig.SourceCPU),
			"to do, which others on the machine hardly lengthen. The bar is for the share of an empty program: for any program veth copies",
			"frames, and does not for none.",
			fmt.Sprintf("Medians of %d rounds, in which the rows take turns; shares are of the same round.", b.Rounds),
		},
	}
	for _, c := range b.rows {
		b.publishRow(t, c)
	}
	b.Outcome.Tables = append(b.Outcome.Tables, t)
}

// publishRow adds a row to its table, the results and the bars.
func (b *outBuilder) publishRow(t *report.Table, c *outCase) {
	r := lab.Result{Name: b.Outcome.Name + "/" + c.row(), Runs: len(c.figures[outMoved]), Note: c.missing}
	cells := make([]string, len(t.Head))
	cells[0], cells[len(cells)-1] = c.label, c.missing
	if r.Runs > 0 {
		add := func(unit string, s report.Samples) { r.Metrics = append(r.Metrics, s.Metric(unit)) }
		cells[1] = megabytes(c.figures[outMoved], &r, "MB/s")
		cells[5] = megabytes(c.figures[outAble], &r, "able-MB/s")
		add("requests/s", c.figures[outRequests])
		add("p99-ns", c.figures[outP99])
		cells[7] = fmt.Sprintf("%.0f", c.figures[outRequests].Median())
		cells[11] = fmt.Sprintf("%.0f", c.figures[outP99].Median()/1e3)
		for _, by := range []struct {
			cell, bar int
			kind      string
			figure    int
			unit      string
		}{
			{2, 0, bulkOpen, outMoved, "of-open"}, {3, 0, bulkPass, outMoved, "of-xdp-pass"}, {6, 4, bulkPass, outAble, "able-of-xdp-pass"},
			{8, 0, bulkOpen, outRequests, "requests-of-open"}, {9, 10, bulkPass, outRequests, "requests-of-xdp-pass"},
		} {
			share, ok := b.share(c, by.kind, by.figure)
			if !ok {
				continue
			}
			add(by.unit, share)
			cells[by.cell] = fmt.Sprintf("%.3f", share.Median())
			if c.bar > 0 && by.bar > 0 {
				bar := report.AtLeast(r.Name+" "+by.unit, share.Median(), c.bar)
				b.Outcome.Bars = append(b.Outcome.Bars, bar)
				cells[by.bar] = bar.String()
			}
		}
	}
	b.Outcome.Results = append(b.Outcome.Results, r)
	t.AddRow(cells...)
}

// share is a row's figure by that of another row in the same rounds; false when it is that row or that was not measured.
func (b *outBuilder) share(c *outCase, kind string, figure int) (report.Samples, bool) {
	for _, other := range b.rows {
		if other.name == kind && other != c {
			by := c.figures[figure].By(other.figures[figure])
			return by, len(by) > 0
		}
	}
	return nil, false
}
