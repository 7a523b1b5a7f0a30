package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/bench/lists"
	"github.com/floodwall/floodwall/internal/bench/report"
	"github.com/floodwall/floodwall/internal/bench/rig"
	"github.com/floodwall/floodwall/internal/bench/sets"
	"github.com/floodwall/floodwall/internal/bench/synproxy"
	"github.com/floodwall/floodwall/internal/lab"
)

// Ratio is what one kind of packet costs by another, and the most that it may: a bound that a machine holds which is not
// always as fast.
type Ratio struct {
	Of    string  `json:"of"`   // one of GuardRows
	By    string  `json:"by"`   // another
	Most  float64 `json:"most"` // the bound
	Why   string  `json:"why"`  // what exceeds it
	Value float64 `json:"value,omitempty"`
}

// Exceeded reports whether the ratio, measured, is above its bound. What is no number is within none.
func (r *Ratio) Exceeded() bool { return !(r.Value <= r.Most) }

// The guard takes the least time of some short rounds, as what disturbs only adds. When that exceeds a bound, it takes
// the same once more, and again, before it says so.
const (
	guardRounds = 3
	guardTries  = 3
	guardWindow = 150 * time.Millisecond
)

// guardList is the number of addresses of the guard's list.
const guardList = 1_000_000

// guardRow is something that the guard measures.
type guardRow struct {
	name string
	add  func(context.Context, *guard) (*rig.Rate, error)
}

// guardRows are what the guard can measure, beside the empty program.
var guardRows = []guardRow{
	{"rules=0", guardRules(0)}, {"rules=20", guardRules(20)}, {"rules=10000", guardRules(10_000)},
	{"listed", guardListed}, {"unlisted", guardUnlisted},
	{"limit", guardPolicy("default: drop\nrules: [{name: limit, proto: udp, over: {rate: 1/s, per: from/16}, then: drop}]\n", nil)},
	{"syn", guardPolicy(fmt.Sprintf(synproxy.Policy, "host"), []lab.Flow{synproxy.SYNs.Flow(rig.Server4, 80)})},
	{"ack", guardPolicy(fmt.Sprintf(synproxy.Policy, "host"), []lab.Flow{synproxy.ACKs.Flow(rig.Server4, 80)})},
}

// GuardRows are the names of what the guard can measure.
func GuardRows() []string {
	names := []string{"empty"}
	for _, r := range guardRows {
		names = append(names, r.name)
	}
	return names
}

// ReadRatios reads the guard's bounds: a JSON array.
func ReadRatios(path string) (ratios []Ratio, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("bounds: %w", err)
	}
	if err := json.Unmarshal(text, &ratios); err != nil {
		return nil, fmt.Errorf("bounds %s: %w", path, err)
	}
	if len(ratios) == 0 {
		return nil, fmt.Errorf("bounds %s: no ratio is in it", path)
	}
	for i, r := range ratios {
		for _, name := range []string{r.Of, r.By} {
			if !slices.Contains(GuardRows(), name) {
				return nil, fmt.Errorf("bounds %s: ratio %d: unknown row %q, the rows are %v", path, i+1, name, GuardRows())
			}
		}
		if r.Most <= 0 {
			return nil, fmt.Errorf("bounds %s: ratio %d: most must be positive, got %v", path, i+1, r.Most)
		}
	}
	return ratios, nil
}

// guard is one run of it.
type guard struct {
	*rig.Builder
	ratios []Ratio
	list   *lists.List
	held   *rig.Subject // the list, once it is loaded
}

// Guard measures these ratios: the receive thread's own time, with source and receiver on one core. progress is where
// to show a line, if it is a terminal.
func Guard(ctx context.Context, ratios []Ratio, progress io.Writer) ([]Ratio, error) {
	o := rig.Options{Rounds: guardRounds, Window: guardWindow, Quick: true}.WithDefaults()
	s := &rig.Session{Options: o, Outcome: &report.Outcome{Name: "guard"}, Steps: rig.NewProgress(progress, []string{"guard"}, o)}
	g := &guard{ratios: slices.Clone(ratios)}
	s.Steps.Begin()
	err := rig.InLab(ctx, func(l *lab.Lab) error {
		g.Builder = &rig.Builder{Session: s, Lab: l}
		defer g.Close()
		if err := g.build(ctx); err != nil {
			return err
		}
		return g.judge(ctx)
	})
	s.Steps.End()
	return g.ratios, err
}

// build loads what the ratios ask for.
func (g *guard) build(ctx context.Context) error {
	g.list = lists.RandomHosts(guardList)
	g.Flow = rig.Flood(g.list.Unlisted)
	if err := g.Limits(); err != nil {
		return err
	}
	for _, row := range guardRows {
		if !slices.ContainsFunc(g.ratios, func(r Ratio) bool { return r.Of == row.name || r.By == row.name }) {
			continue
		}
		g.Steps.Show("loading %s", row.name)
		r, err := row.add(ctx, g)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		r.Name, r.Label = row.name, row.name
		g.Add(r)
	}
	return nil
}

// judge measures until no ratio is exceeded, or that is certain. A row that never measured anything is an error.
func (g *guard) judge(ctx context.Context) (err error) {
	for range guardTries {
		if err := g.rounds(ctx); err != nil {
			return err
		}
		if err = g.divide(); err == nil && !slices.ContainsFunc(g.ratios, func(r Ratio) bool { return r.Exceeded() }) {
			return nil
		}
	}
	return err
}

// divide fills the ratios.
func (g *guard) divide() error {
	for i := range g.ratios {
		r := &g.ratios[i]
		of, err := g.fastest(r.Of)
		if err != nil {
			return err
		}
		by, err := g.fastest(r.By)
		if err != nil {
			return err
		}
		r.Value = by / of
	}
	return nil
}

// rounds takes more rounds of all rows.
func (g *guard) rounds(ctx context.Context) error {
	g.Steps.Expect(g.Rounds * len(g.Table.Rows))
	for range g.Rounds {
		for _, r := range g.Table.Rows {
			g.Steps.Show("%s", r.Label)
			if err := r.Measure(ctx, g.Session, rig.OneCore, uint64(len(r.Rounds))); err != nil {
				return fmt.Errorf("%s: %w", r.Label, err)
			}
			g.Steps.Step()
		}
	}
	return nil
}

// fastest is the best rate of a row so far.
func (g *guard) fastest(name string) (float64, error) {
	i := slices.IndexFunc(g.Table.Rows, func(r *rig.Rate) bool { return r.Name == name })
	r := g.Table.Rows[i]
	if !r.Measured() {
		return 0, fmt.Errorf("%s: no packet arrived in %d rounds, others had the CPUs: run it when they are done", name, len(r.Rounds))
	}
	return slices.Max(r.Arrived()), nil
}

// guardPolicy is a row of a policy; no flows are those of all rows.
func guardPolicy(text string, flows []lab.Flow) func(context.Context, *guard) (*rig.Rate, error) {
	return func(ctx context.Context, g *guard) (*rig.Rate, error) {
		a, err := g.XDP.Apply(ctx, text, nil)
		if err != nil {
			return nil, err
		}
		return &rig.Rate{Subject: rig.Subject{Site: g.XDP, Program: g.Own(a.Program)}, Flows: flows}, nil
	}
}

func guardRules(n int) func(context.Context, *guard) (*rig.Rate, error) {
	return guardPolicy(lists.RulesPolicy(n), nil)
}

func guardListed(ctx context.Context, g *guard) (*rig.Rate, error) {
	return g.listRow(ctx, []lab.Flow{rig.Flood(g.list.Listed)})
}

func guardUnlisted(ctx context.Context, g *guard) (*rig.Rate, error) { return g.listRow(ctx, nil) }

// listRow is a row of the list, which is loaded once.
func (g *guard) listRow(ctx context.Context, flows []lab.Flow) (*rig.Rate, error) {
	if g.held == nil {
		b := &sets.Builder{Builder: rig.Builder{Session: g.Session, Lab: g.Lab, XDP: g.XDP}, List: g.list}
		l, err := sets.LoadFloodwall(ctx, b)
		g.Owned = append(g.Owned, b.Owned...)
		if err != nil {
			return nil, err
		}
		g.held = &l.Subject
	}
	return &rig.Rate{Subject: *g.held, Flows: flows}, nil
}
