package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

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
	add  func(context.Context, *guard) (*rate, error)
}

// guardRows are what the guard can measure, beside the empty program.
var guardRows = []guardRow{
	{"rules=0", guardRules(0)}, {"rules=20", guardRules(20)}, {"rules=10000", guardRules(10_000)},
	{"listed", guardListed}, {"unlisted", guardUnlisted},
	{"limit", guardPolicy("default: drop\nrules: [{name: limit, proto: udp, over: {rate: 1/s, per: from/16}, then: drop}]\n", nil)},
	{"syn", guardPolicy(fmt.Sprintf(synPolicy, "host"), []lab.Flow{synOnly.flow(server4, 80)})},
	{"ack", guardPolicy(fmt.Sprintf(synPolicy, "host"), []lab.Flow{ackOnly.flow(server4, 80)})},
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
	*builder
	ratios []Ratio
	list   *list
	held   *subject // the list, once it is loaded
}

// Guard measures these ratios: the receive thread's own time, with source and receiver on one core. progress is where
// to show a line, if it is a terminal.
func Guard(ctx context.Context, ratios []Ratio, progress io.Writer) ([]Ratio, error) {
	o := Options{Rounds: guardRounds, Window: guardWindow, Quick: true}.withDefaults()
	s := &session{Options: o, outcome: &Outcome{Name: "guard"}, progress: newProgress(progress, newOutlook([]Experiment{{Name: "guard"}}, o))}
	g := &guard{ratios: slices.Clone(ratios)}
	s.progress.begin()
	err := inLab(ctx, func(l *lab.Lab) error {
		g.builder = &builder{session: s, lab: l}
		defer g.close()
		if err := g.build(ctx); err != nil {
			return err
		}
		return g.judge(ctx)
	})
	s.progress.end()
	return g.ratios, err
}

// build loads what the ratios ask for.
func (g *guard) build(ctx context.Context) error {
	g.list = randomHosts(guardList)
	g.flow = flood(g.list.unlisted)
	if err := g.limits(); err != nil {
		return err
	}
	for _, row := range guardRows {
		if !slices.ContainsFunc(g.ratios, func(r Ratio) bool { return r.Of == row.name || r.By == row.name }) {
			continue
		}
		g.progress.show("loading %s", row.name)
		r, err := row.add(ctx, g)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		r.name, r.label = row.name, row.name
		g.add(r)
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
	g.progress.expect(g.Rounds * len(g.table.rows))
	for range g.Rounds {
		for _, r := range g.table.rows {
			g.progress.show("%s", r.label)
			if err := r.measure(ctx, g.session, oneCore, uint64(len(r.rounds))); err != nil {
				return fmt.Errorf("%s: %w", r.label, err)
			}
			g.progress.step()
		}
	}
	return nil
}

// fastest is the best rate of a row so far.
func (g *guard) fastest(name string) (float64, error) {
	i := slices.IndexFunc(g.table.rows, func(r *rate) bool { return r.name == name })
	r := g.table.rows[i]
	if !r.measured() {
		return 0, fmt.Errorf("%s: no packet arrived in %d rounds, others had the CPUs: run it when they are done", name, len(r.rounds))
	}
	return slices.Max(r.arrived()), nil
}

// guardPolicy is a row of a policy; no flows are those of all rows.
func guardPolicy(text string, flows []lab.Flow) func(context.Context, *guard) (*rate, error) {
	return func(ctx context.Context, g *guard) (*rate, error) {
		a, err := g.xdp.apply(ctx, text, nil)
		if err != nil {
			return nil, err
		}
		return &rate{subject: subject{g.xdp, g.own(a.program)}, flows: flows}, nil
	}
}

func guardRules(n int) func(context.Context, *guard) (*rate, error) {
	return guardPolicy(rulesPolicy(n), nil)
}

func guardListed(ctx context.Context, g *guard) (*rate, error) {
	return g.listRow(ctx, []lab.Flow{flood(g.list.listed)})
}

func guardUnlisted(ctx context.Context, g *guard) (*rate, error) { return g.listRow(ctx, nil) }

// listRow is a row of the list, which is loaded once.
func (g *guard) listRow(ctx context.Context, flows []lab.Flow) (*rate, error) {
	if g.held == nil {
		b := &setBuilder{builder: builder{session: g.session, lab: g.lab, xdp: g.xdp}, list: g.list}
		l, err := loadFloodwall(ctx, b)
		g.owned = append(g.owned, b.owned...)
		if err != nil {
			return nil, err
		}
		g.held = &l.subject
	}
	return &rate{subject: *g.held, flows: flows}, nil
}
