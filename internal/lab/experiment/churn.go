package experiment

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// churn measures what a protection leaves of the requests of a client that opens a connection for each, as a reverse proxy
// does, without a flood.
func churn(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) (err error) {
		b := &churnBuilder{synproxyBuilder: synproxyBuilder{Builder: rig.Builder{Session: s, Lab: l}}}
		defer b.Close()
		for _, c := range churnCases() {
			if !slices.ContainsFunc(churnClients[:], func(clients int) bool { return s.Wants(c.row(clients)) }) {
				continue
			}
			if c.missing, err = b.SetUp(c.label, func() error { return b.prepare(ctx, c) }); err != nil {
				return fmt.Errorf("connections of one client, %w", err)
			}
			b.rows = append(b.rows, c)
		}
		defer b.publish() // what there is, also when the rest cannot be measured
		return b.measure(ctx)
	})
}

// churnBuilder makes the table of connections of one client.
type churnBuilder struct {
	synproxyBuilder
	rows []*churnCase
}

// churnCase is a row.
type churnCase struct {
	name, label string
	behind      bool // the server is behind the host that protects
	install     installer
	compared    bool // with the row without protection
	goal        bool // what it must reach is known

	site    *synproxySite
	missing string
	rates   [len(churnClients)]report.Samples // requests answered per second, by churnClients
	failed  [len(churnClients)]uint64
}

// row is what the row of a case with so many requests at a time is called.
func (c *churnCase) row(clients int) string { return fmt.Sprintf("churn/%s/%d", c.name, clients) }

// churnClients are how many requests are under way at a time.
var churnClients = [...]int{1, 20, 200}

// churnPorts are the client's, few enough to be used again within seconds; churnTimeout is what load testers wait for.
const (
	churnPorts   = "20000 29999"
	churnTimeout = 2 * time.Second
)

// churnBar is the least share of the requests without protection.
const churnBar = 0.95

// churnCases are the rows.
func churnCases() (all []*churnCase) {
	for _, at := range []struct{ mode, chain string }{{"host", "INPUT"}, {"router", "FORWARD"}} {
		mode := at.mode
		for _, c := range []*churnCase{
			{name: "floodwall-off", label: "floodwall, syn: off", install: bulkUnprotected},
			{name: "synproxy", label: "kernel SYNPROXY", install: kernelSynproxy(at.chain), compared: true},
			{name: "floodwall-protect", label: "floodwall, syn: protect", install: protectWhen(mode, "auto"), compared: true, goal: true},
			{name: "floodwall-always", label: "floodwall, syn: always", install: protect(mode), compared: true, goal: true},
		} {
			c.name, c.label, c.behind = c.name+"/"+mode, c.label+", "+mode, mode == "router"
			all = append(all, c)
		}
	}
	return all
}

// prepare builds the site of a row.
func (b *churnBuilder) prepare(ctx context.Context, c *churnCase) (err error) {
	if c.site, err = synproxyNewSite(ctx, &b.Builder, c.behind); err != nil {
		return err
	}
	if err := c.site.clients.Host.Sysctl("ipv4/ip_local_port_range", churnPorts); err != nil {
		return err
	}
	return c.install(ctx, &b.synproxyBuilder, c.site)
}

// measure takes all rounds, in which the rows take turns.
func (b *churnBuilder) measure(ctx context.Context) error {
	label := func(c *churnCase) string { return "connections of one client, " + c.label }
	return rig.InTurns(b.Session, b.rows, label, func(_ int, c *churnCase) error { return b.take(ctx, c) })
}

// take takes one round of a row.
func (b *churnBuilder) take(ctx context.Context, c *churnCase) error {
	if c.missing != "" {
		return nil
	}
	for i, clients := range churnClients {
		if !b.Wants(c.row(clients)) {
			continue
		}
		s, err := lab.Load(ctx, lab.LoadOptions{
			Host: c.site.clients.Host, Server: c.site.web, Connections: clients, Timeout: churnTimeout, Duration: visitTime(b.Session),
		})
		if err != nil {
			return err
		}
		c.rates[i], c.failed[i] = append(c.rates[i], s.Rate), c.failed[i]+s.Failed
	}
	return ctx.Err()
}

// publish adds the table, the results and the bars to the outcome.
func (b *churnBuilder) publish() {
	t := &report.Table{
		Title: "synproxy: requests per second of one client, a connection for each",
		Head:  []string{"", "at a time", "requests/s", "of syn: off", "bar", "failed", "bar", ""},
		Notes: []string{
			fmt.Sprintf("No flood. The client has one address and 10,000 ports, and waits %v for an answer.", churnTimeout),
			fmt.Sprintf("Medians of %d rounds, in which the rows take turns; shares are of the same round.", b.Rounds),
		},
	}
	for _, c := range b.rows {
		for i, clients := range churnClients {
			if b.Wants(c.row(clients)) {
				b.row(t, c, i)
			}
		}
	}
	b.Outcome.Tables = append(b.Outcome.Tables, t)
}

// row adds a row with so many requests at a time, by their index, to the table, the results and the bars.
func (b *churnBuilder) row(t *report.Table, c *churnCase, i int) {
	clients := strconv.Itoa(churnClients[i])
	r := lab.Result{Name: b.Outcome.Name + "/" + c.row(churnClients[i]), Runs: len(c.rates[i]), Note: c.missing}
	cells := make([]string, len(t.Head))
	cells[0], cells[1], cells[7] = c.label, clients, c.missing
	if len(c.rates[i]) > 0 {
		r.Metrics = append(r.Metrics, c.rates[i].Metric("requests/s"), lab.Metric{Value: float64(c.failed[i]), Unit: "failed"})
		cells[2], cells[5] = fmt.Sprintf("%.0f", c.rates[i].Median()), strconv.FormatUint(c.failed[i], 10)
	}
	if by := c.rates[i].By(b.unprotected(c).rates[i]); c.compared && len(by) > 0 {
		r.Metrics = append(r.Metrics, by.Metric("of-off"))
		cells[3] = fmt.Sprintf("%.3f", by.Median())
		if c.goal {
			share := report.AtLeast(r.Name+" of-off", by.Median(), churnBar)
			failed := report.AtMost(r.Name+" failed", float64(c.failed[i]), 0)
			b.Outcome.Bars = append(b.Outcome.Bars, share, failed)
			cells[4], cells[6] = share.String(), failed.String()
		}
	}
	b.Outcome.Results = append(b.Outcome.Results, r)
	t.AddRow(cells...)
}

// unprotected is the row without protection that has the server at the same place.
func (b *churnBuilder) unprotected(of *churnCase) *churnCase {
	for _, c := range b.rows {
		if !c.compared && c.behind == of.behind {
			return c
		}
	}
	return of
}
