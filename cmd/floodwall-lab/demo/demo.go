// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// Options are the choices of a demonstration.
type Options struct {
	Duration time.Duration // duration of each phase; 0: 6 s
	Rate     float64       // rate of the flood in packets per second; 0: a rate that suits this machine
	Requests float64       // requests of the clients per second; 0: 1,000
	List     string        // file of bad addresses; "": a generated one
	Policy   string        // the policy's text; "": the policy that protects the server
	Program  string        // path of floodwall, which runs the daemon
	Report   string        // directory for the report of the attack; "": a new one in the directory for temporary files
	Owner    Owner         // owner of the report

	// Done is called with the summary at the end, after the viewer is closed. The daemon's page stays available until Done returns.
	Done func(ctx context.Context, s *Summary) error
}

// Owner is a user and a group. The zero value is root.
type Owner struct{ UID, GID int }

func (o Options) withDefaults() Options {
	if o.Duration == 0 {
		o.Duration = 6 * time.Second
	}
	if o.Requests == 0 {
		o.Requests = 1000
	}
	if o.Done == nil {
		o.Done = func(context.Context, *Summary) error { return nil }
	}
	return o
}

// Viewer shows a demonstration while it runs. Only one of its methods is called at a time.
type Viewer interface {
	Interval() time.Duration        // the interval at which Moment should be called
	Policy(text string)             // the policy that will be applied; called first
	Note(text string)               // an event, in a line
	Page(address string)            // the address of the daemon's page, from now on
	Phase(number int, title string) // a phase begins; numbered from 0
	Moment(Moment)
	Close() error // ends the view; always called
}

// show is a running demonstration.
type show struct {
	options Options
	viewer  Viewer
	scene   *scene
	summary *Summary
	watch   *watch // nil: the policy does not detect attacks
	closed  bool   // the viewer is closed
	told    bool   // the summary was passed on
}

// Run runs the demonstration and closes the viewer. It needs root. It returns an error if the demonstration was impossible, or if the policy could
// not be applied. Summary.Trouble returns faults of Floodwall.
func Run(ctx context.Context, o Options, v Viewer) (*Summary, error) {
	w := &show{options: o.withDefaults(), viewer: v, summary: &Summary{}}
	err := lab.Run(ctx, w.run)
	err = errors.Join(err, w.closeViewer())
	if ctx.Err() != nil && !w.told {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return w.summary, nil
}

func (w *show) closeViewer() error {
	if w.closed {
		return nil
	}
	w.closed = true
	return w.viewer.Close()
}

func (w *show) run(ctx context.Context, l *lab.Lab) (err error) {
	if w.summary.Machine, err = lab.DescribeMachine(); err != nil {
		return err
	}
	if err := checkReportDir(w.options.Report); err != nil {
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
	if err := w.beginWatch(ctx); err != nil {
		return err
	}
	if w.watch != nil {
		defer w.watch.close()
	}
	quietTime, err := w.phase(ctx, quiet, nil)
	if err != nil {
		return err
	}
	if err := w.watch.teach(quietTime.rates); err != nil {
		return err
	}
	source, err := w.scene.newFlood(w.summary.Rate)
	if err != nil {
		return err
	}
	if err := w.attack(ctx, source); err != nil {
		return err
	}
	if err := w.downloads(ctx, source); err != nil {
		return err
	}
	return w.tell(ctx)
}

// tell passes the summary to Done, after everything else has ended.
func (w *show) tell(ctx context.Context) error {
	w.keepReport()
	if err := w.closeViewer(); err != nil {
		return err
	}
	w.told = true
	return w.options.Done(ctx, w.summary)
}

// beginWatch starts the daemon and shows the address of its page.
func (w *show) beginWatch(ctx context.Context) error {
	p, err := w.scene.policy()
	if err != nil || !p.Daemon.Detect.On {
		return err
	}
	w.viewer.Note("starting floodwall daemon")
	if w.watch, err = w.scene.watch(ctx, w.options.Program); err != nil {
		return err
	}
	w.summary.Page = w.watch.page.address
	w.viewer.Page(w.summary.Page)
	return nil
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

// attack runs the second and the third phase. The second phase has the flood without Floodwall. The third has the same flood with Floodwall.
func (w *show) attack(ctx context.Context, source *lab.Source) (err error) {
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
	w.viewer.Note("waiting for the daemon's report")
	w.watch.seen(ctx)
	if err := stop(); err != nil {
		return err
	}
	w.summary.Fate, err = w.scene.settle(ctx, bare, applied)
	if err != nil {
		return err
	}
	status, err := w.scene.status()
	if err != nil {
		return err
	}
	w.summary.Drops = drops(status)
	w.summary.Attack = w.watch.over(ctx)
	w.summary.Daemon = w.watch.complaint()
	return ctx.Err()
}
