package attack

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/sources/geo"
	"github.com/floodwall/floodwall/policy"
)

// Turns of an attack, in the Data of an Event.
const (
	Started   = "started"
	Suggested = "suggested"
	Over      = "over"
)

// Event is a turn of an attack, or an error, after which the Watcher goes on.
type Event struct {
	Text string
	Err  error
	Data *Turn // nil with an error
}

// Turn is what an Event tells programs. Every user of this host may read it: it has nothing of packets, as suggested rules have.
type Turn struct {
	State  string  `json:"state"` // Started, Suggested or Over; or what was done with an automatic rule, as in a Step
	Attack Summary `json:"attack"`
	Rules  int     `json:"rules,omitempty"` // how many are suggested
	Rule   string  `json:"rule,omitempty"`  // the name of the automatic rule
	Why    string  `json:"why,omitempty"`   // that was done with it, with the figures
}

// Collateral is the most of the legitimate samples that suggested rules may match, as a share.
const Collateral = 0.001

const (
	keepEvery     = 5 * time.Second  // at most between two times that the report of an attack that goes on is written
	resumeWithin  = 10 * time.Minute // in which a daemon that starts takes an attack up that another one saw
	leastBaseline = 500              // samples without which a learned baseline says nothing
)

// Watcher looks for attacks while the policy that runs says so.
type Watcher struct {
	host  operate.Host
	store Store
	tell  func(Event)

	rate     rate
	learned  baseline
	recent   []sample.Sample // of the last seconds: they are of an attack that is about to begin
	latest   []*operate.Top  // the last beginSeconds of them
	before   *control.Status
	at       time.Time
	settings policy.Detect
	kept     time.Time // when the baseline was written
	failed   string    // the error that was told last
	lost     uint64

	databases geo.Databases // of countries and autonomous systems

	proposed *Suggestion // the one that automatic rules were taken from last

	now     *collecting            // nil in quiet times
	current atomic.Pointer[Report] // of it, as it was a second ago, for others
}

// New makes a Watcher that tells what happens. The host must have a Tap.
func New(h operate.Host, store Store, tell func(Event)) *Watcher {
	return &Watcher{host: h, store: store, tell: tell}
}

// Store is where the reports are. That of a nil Watcher has none.
func (w *Watcher) Store() Store {
	if w == nil {
		return Store{}
	}
	return w.store
}

// Active is how many attacks go on: 1 or 0.
func (w *Watcher) Active() int {
	if w.Current() != nil {
		return 1
	}
	return 0
}

// Current is the report of the attack that goes on, without its reasons. It is nil in quiet times, and must not be changed.
func (w *Watcher) Current() *Report {
	if w == nil {
		return nil
	}
	return w.current.Load()
}

// show lets others see the attack that goes on.
func (w *Watcher) show() {
	r := w.now.report
	r.Reasons = nil // they are counted further
	w.current.Store(&r)
}

// Run looks for attacks until ctx ends. What goes on then is written, for the next daemon to take up.
func (w *Watcher) Run(ctx context.Context) {
	f := w.host.Tap.Follow()
	defer f.Close()
	for next := time.Now(); ctx.Err() == nil; {
		now := time.Now()
		if next = next.Add(time.Second); next.Before(now) {
			next = now // a second that was missed is not made up for
		}
		if w.before == nil { // nothing is counted: a second that is measured keeps its length
			next = now.Add(periodic.Left(time.Second))
		}
		w.take(ctx, f, next)
		if ctx.Err() == nil {
			w.second(ctx, f)
		}
	}
	w.end()
}

// take takes samples until a time.
func (w *Watcher) take(ctx context.Context, f *sample.Follower, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for {
		s, err := f.Read(ctx)
		if err != nil {
			return
		}
		if w.settings.On {
			w.sample(s)
		}
	}
}

// sample takes a sample.
func (w *Watcher) sample(s sample.Sample) {
	switch {
	case w.now != nil:
		w.now.see(s, w.rate.calm())
	case len(w.recent) < mostPassed:
		w.recent = append(w.recent, s)
	}
}

// second looks at the counters, and decides.
func (w *Watcher) second(ctx context.Context, f *sample.Follower) {
	settings, err := w.host.DaemonSettings(ctx)
	if err != nil || !settings.Detect.On {
		if err == nil && w.settings.On && len(w.mine()) > 0 {
			w.removeAutomatic(ctx, "the policy does not look for attacks any more")
		}
		w.stop()
		return
	}
	if w.settings != settings.Detect {
		if !w.settings.On {
			w.databases = w.host.Databases(ctx)
			w.begin(settings.Detect)
			w.readable(settings.Detect.Baseline)
		}
		w.settings, w.rate.least, w.rate.quiet = settings.Detect, float64(settings.Detect.Least), settings.Detect.Quiet
	}
	status, err := w.host.Instance.Status(ctx)
	if err != nil {
		w.before = nil
		return
	}
	before := w.before
	w.before, w.at = status, time.Now()
	if before == nil || before.Generation != status.Generation {
		w.databases = w.host.Databases(ctx)
		return
	}
	lost, _ := f.Lost()
	w.judge(operate.Between(before, status), max(1, settings.Sample), lost)
	w.automate(ctx)
}

// judge takes what a second brought.
func (w *Watcher) judge(t *operate.Top, oneIn uint32, lost uint64) {
	usual, bound := w.rate.level()
	turn := w.rate.add(t.Passed.Packets + t.Dropped.Packets)
	w.latest = append(w.latest[max(0, len(w.latest)-beginSeconds+1):], t)
	switch {
	case turn == begins:
		w.attack(t, usual, bound, oneIn, lost)
	case w.now == nil:
		w.quiet()
		return
	}
	if turn != begins && !w.rate.calm() {
		w.now.count(t, w.at)
	}
	w.now.oneIn = oneIn
	w.now.renew(w.at, lost-w.lost)
	w.show()
	switch turn {
	case begins:
		w.say(Started, w.now.report.Headline())
		w.keep()
	case ends, lasts:
		w.over(turn)
		return
	}
	w.search()
	if w.at.Sub(w.kept) >= keepEvery {
		w.keep()
	}
}

// attack begins a report.
func (w *Watcher) attack(t *operate.Top, usual, bound float64, oneIn uint32, lost uint64) {
	started := w.at.Add(-beginSeconds * time.Second).UTC()
	c := newCollecting(Report{
		ID: started.Format("20060102-150405"), Started: started, Policy: t.Policy, Generation: t.Generation, Target: t.Target, Devices: t.Devices,
		Usual: usual, Bound: bound, Reasons: []Reason{}, Vectors: []Vector{},
	}, w.databases)
	for i := range w.recent {
		if w.recent[i].Time.After(started) {
			c.see(w.recent[i], false)
		}
	}
	if good, err := w.good(); err == nil {
		c.usual = shares(good)
	}
	for _, t := range w.latest { // the seconds that it took to see it
		c.count(t, w.at)
	}
	w.recent, w.lost = nil, lost
	w.learned.forget()
	w.now = c
	w.show()
}

// quiet is a second without an attack: what passed teaches the baseline.
func (w *Watcher) quiet() {
	if w.rate.above == 0 {
		for _, s := range w.recent {
			if s.Verdict == "pass" {
				w.learned.add(s)
			}
		}
		w.recent = nil
	}
	w.learned.learn(w.at)
	if w.at.Sub(w.kept) >= saveEvery {
		w.keepUsual()
	}
}

// search searches rules when it is time to.
func (w *Watcher) search() {
	if !w.now.due(w.at, w.settings.Auto.Max > 0) {
		return
	}
	good, err := w.good()
	if err != nil {
		w.fail(err)
	}
	collateral := Collateral
	if most := w.settings.Auto; most.Max > 0 {
		collateral = min(collateral, most.Collateral)
	}
	found, err := w.now.search(w.at, good, w.taken(), collateral)
	if err != nil {
		w.fail(err)
	}
	if found {
		r := &w.now.report
		w.say(Suggested, fmt.Sprintf("attack %s: suggested rules: %d, until %s; `floodwall attacks %s` shows them",
			r.ID, len(r.Suggestion.Rules), r.Suggestion.Expires.Format(time.TimeOnly), r.ID))
		w.keep()
	}
}

// readable warns of a baseline that cannot be read before it is asked for, when an attack goes on.
func (w *Watcher) readable(file string) {
	if file == "" {
		return
	}
	if _, _, packets, err := suggest.ReadFile(file, 1, 0); err != nil {
		w.fail(fmt.Errorf("detect: the baseline: %w", err))
	} else if packets == 0 {
		w.fail(fmt.Errorf("detect: the baseline: %s has no IP packet", file))
	}
}

// good are legitimate samples: those of the file that the policy names, or those that were learned.
func (w *Watcher) good() ([]suggest.Sample, error) {
	if file := w.settings.Baseline; file != "" {
		samples, _, _, err := suggest.ReadFile(file, suggest.MostGood, 0)
		return samples, err
	}
	if len(w.learned.samples) < leastBaseline {
		return nil, nil
	}
	list := make([]suggest.Sample, len(w.learned.samples))
	for i, s := range w.learned.samples {
		list[i] = suggest.NewSample(s.Frame, s.Length)
	}
	return list, nil
}

// over ends the report.
func (w *Watcher) over(turn change) {
	end := w.now.report.last()
	w.now.report.Ended = &end
	if turn == lasts {
		w.now.report.Note = fmt.Sprintf("the rate has lasted for %v, and is taken for usual from now on", longest)
	}
	w.keep()
	text := w.now.report.Headline()
	w.say(Over, fmt.Sprintf("%s: over after %s; `floodwall attacks %s` shows the report", text, w.now.report.Lasted(), w.now.report.ID))
	if err := w.store.prune(); err != nil {
		w.fail(err)
	}
	w.none()
	w.keepUsual()
}

// none has no attack go on.
func (w *Watcher) none() {
	w.now = nil
	w.current.Store(nil)
}

// keep writes the report.
func (w *Watcher) keep() {
	w.kept = w.at
	if err := w.store.save(&w.now.report, w.now.captured); err != nil {
		w.fail(err)
	}
}

// say tells of a turn of the attack that goes on.
func (w *Watcher) say(state, text string) {
	t := &Turn{State: state, Attack: w.now.report.Summary()}
	if s := w.now.report.Suggestion; s != nil {
		t.Rules = len(s.Rules)
	}
	w.tell(Event{Text: text, Data: t})
}

// fail tells of an error, once until another one comes.
func (w *Watcher) fail(err error) {
	if w.failed != err.Error() {
		w.failed = err.Error()
		w.tell(Event{Err: err})
	}
}

// stop ends what goes on, as no policy runs that wants it.
func (w *Watcher) stop() {
	if w.settings.On {
		w.end()
	}
	w.settings, w.before, w.recent, w.latest = policy.Detect{}, nil, nil, nil
}

// end writes what is known.
func (w *Watcher) end() {
	if !w.settings.On {
		return
	}
	if w.now != nil {
		w.keep()
		w.none()
	}
	w.keepUsual()
}

// usual is what a daemon that starts knows of the times before.
type usual struct {
	Seconds []float64 `json:"seconds"` // packets of quiet ones
}

// keepUsual writes what quiet times are like.
func (w *Watcher) keepUsual() {
	w.kept = w.at
	err := w.store.writeJSON(usualName, usual{Seconds: w.rate.usual})
	if len(w.learned.samples) >= leastBaseline {
		err = errors.Join(err, w.store.writePackets(baselineName, w.learned.samples))
	}
	if err != nil {
		w.fail(err)
	}
}

// begin takes up what the daemon before has written: the usual rate, the baseline, and an attack that went on a moment ago.
func (w *Watcher) begin(d policy.Detect) {
	w.kept = time.Now()
	w.store.clean()
	w.rate = rate{least: float64(d.Least), quiet: d.Quiet}
	var before usual
	if err := w.store.readJSON(usualName, &before); err == nil {
		w.rate.usual = before.Seconds[max(0, len(before.Seconds)-usualSeconds):]
	}
	w.learned.samples = w.store.packets(baselineName)
	w.learned.seen = len(w.learned.samples)
	w.resume()
}

// resume takes up the latest attack when it had not ended, or ends it when that is too long ago.
func (w *Watcher) resume() {
	list, err := w.store.List()
	if err != nil {
		w.fail(err)
		return
	}
	for _, s := range list {
		r, err := w.store.Report(s.ID)
		if err != nil || r.Ended != nil {
			continue
		}
		if w.now == nil && time.Since(r.Updated) < resumeWithin && len(w.rate.usual) >= leastSeconds {
			c := newCollecting(*r, w.databases)
			c.again(w.store.packets(r.ID + captureFile))
			w.rate.begin(r.Bound)
			w.now = c
			w.show()
			continue
		}
		end := r.last()
		r.Ended, r.Note = &end, "nobody saw its end: the daemon did not run"
		if err := w.store.save(r, nil); err != nil {
			w.fail(err)
		}
	}
}
