package demo

import (
	"context"
	"errors"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// Options are the choices of a demonstration.
type Options struct {
	Duration time.Duration // of each phase; 0: 6 s
	Rate     float64       // of the flood in packets per second; 0: what fits this machine
	Requests float64       // of the clients per second; 0: 1,000
	List     string        // file of bad addresses; "": a generated one
	Policy   string        // the policy's text; "": that which saves the server
}

func (o Options) withDefaults() Options {
	if o.Duration == 0 {
		o.Duration = 6 * time.Second
	}
	if o.Requests == 0 {
		o.Requests = 1000
	}
	return o
}

// Viewer shows a demonstration while it goes on. Its methods are called one at a time.
type Viewer interface {
	Interval() time.Duration        // wanted between moments
	Policy(text string)             // what will be applied, before all else
	Note(text string)               // what happens, in a line
	Phase(number int, title string) // begins, numbered from 0
	Moment(Moment)
	Close() error // the end, whatever happened
}

// show is a demonstration that is going on.
type show struct {
	options Options
	viewer  Viewer
	scene   *scene
	summary *Summary
}

// Run gives the demonstration and closes the viewer. It needs root. An error says why there was none, or why the policy
// could not be applied. Summary.Trouble tells whether Floodwall did what it should.
func Run(ctx context.Context, o Options, v Viewer) (*Summary, error) {
	w := &show{options: o.withDefaults(), viewer: v, summary: &Summary{}}
	err := lab.Run(ctx, w.run)
	err = errors.Join(err, v.Close())
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return w.summary, nil
}

func (w *show) run(ctx context.Context, l *lab.Lab) (err error) {
	if w.summary.Machine, err = lab.DescribeMachine(); err != nil {
		return err
	}
	if w.scene, err = newScene(l, w.options); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.scene.close()) }()
	w.summary.Policy = w.scene.script.text
	w.viewer.Policy(w.scene.script.text)
	if err := w.chooseRate(ctx); err != nil {
		return err
	}
	if _, err := w.phase(ctx, quiet, nil); err != nil {
		return err
	}
	return w.attack(ctx)
}

func (w *show) chooseRate(ctx context.Context) error {
	w.summary.Rate = w.options.Rate
	if w.options.Rate != 0 {
		return nil
	}
	w.viewer.Note("measuring this machine")
	capacity, err := w.scene.calibrate(ctx)
	if err != nil {
		return err
	}
	w.summary.Capacity, w.summary.Rate = &capacity, capacity.rate()
	return nil
}

// attack is the second and the third phase: the flood, and the same flood when Floodwall comes.
func (w *show) attack(ctx context.Context) (err error) {
	source, err := w.scene.newFlood(w.summary.Rate)
	if err != nil {
		return err
	}
	stop := startFlood(ctx, source)
	defer func() { err = errors.Join(err, stop()) }()
	if _, err := w.phase(ctx, exposed, source); err != nil {
		return err
	}
	w.viewer.Note("floodwall apply " + policyFile)
	bare, err := w.scene.driverCounts()
	if err != nil {
		return err
	}
	start := time.Now()
	took, err := w.scene.apply(ctx)
	if err != nil {
		return err
	}
	asked := time.Since(start)
	applied, err := w.scene.driverCounts()
	if err != nil {
		return err
	}
	p, err := w.phase(ctx, protected, source)
	if err != nil {
		return err
	}
	w.summary.ApplySeconds = took.Seconds()
	if p.calm > 0 {
		w.summary.ReliefSeconds = (asked + p.calm).Seconds()
	}
	if err := stop(); err != nil {
		return err
	}
	w.summary.Fate, err = w.scene.settle(ctx, bare, applied)
	return err
}
