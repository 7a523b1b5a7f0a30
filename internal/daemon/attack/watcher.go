// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/sources/geo"
	"github.com/floodwall/floodwall/policy"
)

// Collateral is the largest share of the legitimate samples that suggested rules may match.
const Collateral = 0.001

const (
	keepEvery     = 5 * time.Second  // least time between two writes of the report of the current attack
	resumeWithin  = 10 * time.Minute // a daemon that starts within this time continues the attack of the previous daemon
	leastBaseline = 500              // with fewer samples, a learned baseline is not used
)

// Watcher detects attacks while the running policy has `detect`.
type Watcher struct {
	host   operate.Host
	store  Store
	tell   func(Event)
	clock  func() time.Time
	delay  time.Duration // time until a written rule drops; only in a replay
	list   func() ([]datapath.Connection, error)
	change func(context.Context, func([]manifest.Temporary) ([]manifest.Temporary, error)) error // changes the automatic rules

	traffic  *traffic
	learned  baseline
	openings baseline         // first packets of conversations that this host answered in quiet times
	firsts   []suggest.Sample // the openings as they were last decoded
	recent   []sample.Sample  // samples of the last seconds, which belong to an attack that is about to begin
	latest   []*operate.Top   // the last beginSeconds seconds
	before   *control.Status  // the counters at the end of the last second
	read     time.Time        // when `before` was read
	scanned  time.Time        // time of the last scan
	knew     time.Time        // when the known senders were last updated
	at       time.Time
	ticked   time.Time
	oneIn    uint32
	settings policy.Detect
	kept     time.Time // when the baseline was written
	failed   string    // the last reported error
	lost     uint64

	connections []datapath.Connection // the TCP connections of the kernel
	listErr     error
	listed      time.Time // until when the list of connections is valid
	listedAt    time.Time // when the connections were listed

	filed    []suggest.Sample // the baseline from a file
	fileRead time.Time

	databases geo.Databases // databases of countries and autonomous systems

	proposed *Suggestion          // the last suggestion from which automatic rules were taken
	earlier  []*suggest.Signature // automatic rules of earlier attacks, the latest first: they are used at once when an attack returns

	learns atomic.Pointer[Learning]
	noted  time.Time // when the state was last written
	notes  string    // its text
	needed struct {  // number of samples that prove a share
		share   float64
		samples int
	}

	now     *collecting            // nil in quiet times
	current atomic.Pointer[Report] // the report of `now`, as of a second ago, for other goroutines
}

// New makes a Watcher that calls tell with events. The host must have a Tap.
func New(h operate.Host, store Store, tell func(Event)) *Watcher {
	return &Watcher{
		host: h, store: store, tell: tell, clock: time.Now, list: datapath.Open, traffic: newTraffic(0, 0),
		change: func(ctx context.Context, change func([]manifest.Temporary) ([]manifest.Temporary, error)) error {
			return h.ChangeTemporaryOf(ctx, Automatic, change)
		},
	}
}

// replays reports whether this Watcher runs in a replay, which writes no files.
func (w *Watcher) replays() bool { return w.store == (Store{}) }

// Store returns the store of the reports. For a nil Watcher it returns an empty store.
func (w *Watcher) Store() Store {
	if w == nil {
		return Store{}
	}
	return w.store
}

// Active returns the number of active attacks: 1 or 0.
func (w *Watcher) Active() int {
	if w.Current() != nil {
		return 1
	}
	return 0
}

// Current returns the report of the current attack, without its reasons. It returns nil in quiet times. The caller must not change the report.
func (w *Watcher) Current() *Report {
	if w == nil {
		return nil
	}
	return w.current.Load()
}

// show publishes the current attack to other goroutines.
func (w *Watcher) show() {
	r := w.now.report
	r.Reasons, r.Outcomes = nil, nil // they are still being counted
	w.current.Store(&r)
}

// Run detects attacks until ctx ends. It then writes the report of the current attack, so that the next daemon can continue it.
func (w *Watcher) Run(ctx context.Context) {
	f := w.host.Tap.FollowBoth()
	defer f.Close()
	for next := time.Now(); ctx.Err() == nil; {
		now := time.Now()
		if next = next.Add(time.Second); next.Before(now) {
			next = now // a missed second is skipped
		}
		if w.before == nil { // there are no counters yet: the first measured second must be a whole second
			next = now.Add(periodic.Left(time.Second))
		}
		w.take(ctx, f, next)
		if ctx.Err() == nil {
			w.second(ctx, f)
		}
	}
	w.end()
}

// take processes samples until a time.
func (w *Watcher) take(ctx context.Context, f *sample.Follower, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for {
		s, err := f.Read(ctx)
		if err != nil {
			return
		}
		if !w.settings.On {
			continue
		}
		w.oneIn = f.OneIn()
		w.sample(s)
		if now := time.Now(); now.Sub(w.ticked) >= tenth {
			w.ticked = now
			w.tick(ctx, now)
		}
	}
}

// sample processes a sample.
func (w *Watcher) sample(s sample.Sample) {
	seen := w.traffic.sample(s, w.oneIn)
	switch {
	case seen == nil:
	case w.now != nil:
		w.now.see(seen, w.now.calm())
	case len(w.recent) < mostPassed:
		w.recent = append(w.recent, seen.Sample.Sample)
	}
}

// second reads the counters and evaluates the last second.
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
			w.checkBaseline(settings.Detect.Baseline)
		}
		w.filed = nil
		w.settings = settings.Detect
		w.traffic.set(settings.Detect.Least, settings.Detect.Quiet)
	}
	status, err := w.host.Instance.Status(ctx)
	if err != nil {
		w.before = nil
		return
	}
	before := w.before
	w.before, w.at = status, time.Now()
	w.read = w.at
	if before == nil || before.Generation != status.Generation {
		w.databases = w.host.Databases(ctx)
		return
	}
	lost, _ := f.Lost()
	w.judge(operate.Between(before, status), max(1, settings.Sample), lost)
	w.automate(ctx)
	w.explain()
	w.noteLearning()
}

// tick evaluates the samples of the last moments, ten times a second while there are any.
func (w *Watcher) tick(ctx context.Context, now time.Time) {
	w.at = now
	risen := w.traffic.tick(now, w.open)
	if w.before == nil || len(w.latest) == 0 {
		return
	}
	for _, l := range risen {
		w.rise(l, now.Sub(l.risen))
	}
	if w.now != nil {
		w.search()
		w.automate(ctx)
		w.explain()
	}
}

// rise judges a load that has risen. lasts is the time since. It begins an attack, adds the load to the current attack, or reports a crowd or scan.
func (w *Watcher) rise(l *load, lasts time.Duration) Verdict {
	if l.rate.bound > 0 {
		return ""
	}
	facts := w.traffic.facts(l, w.at)
	verdict := facts.verdict(lasts)
	switch verdict {
	case "":
	case Crowd, Scan:
		if verdict == Scan {
			w.scanned = w.at
		}
		w.crowd(l, verdict, facts)
	default:
		_, bound := l.level(w.at)
		begins := w.now == nil
		if begins {
			w.attack(l, bound)
		}
		l.rate.begin(bound)
		w.now.join(l, verdict, facts)
		if begins {
			w.now.report.Times.Named = w.at.Sub(w.now.report.Started).Seconds()
			w.renew()
			w.say(Started, w.now.report.Headline())
			w.keep()
		}
	}
	return verdict
}

// slowly handles a load whose seconds are above the bound of the last minutes. The rate may be usual for the hour of the week. The rate of a crowd is
// learned as usual. The rate of a scan is not learned, because the sender of a scan may be forged.
func (w *Watcher) slowly(l *load, packets float64) {
	if _, bound := l.level(w.at); packets <= bound {
		l.rate.dismiss(packets)
		return
	}
	if l.risen.IsZero() && w.at.Sub(w.ticked) < ticksLate { // by the present samples, the rise has ended
		l.rate.above = 0
		return
	}
	switch w.rise(l, w.lasts(l)) {
	case Crowd:
		l.rate.dismiss(packets)
	case Scan:
		l.rate.above = 0
	}
}

// ticksLate is the time without samples after which the counters alone are used.
const ticksLate = 2 * time.Second

// lasts returns the time since a load rose. A load without samples counts as risen long enough for a verdict.
func (w *Watcher) lasts(l *load) time.Duration {
	if l.risen.IsZero() {
		return goOnFor
	}
	return w.at.Sub(l.risen)
}

// scanAfter is how long nothing is learned after a scan.
const scanAfter = 5 * time.Second

// crowdEvery is the least time between two reports of a crowd at the same service.
const crowdEvery = 10 * time.Minute

// crowd reports a load that has risen but is no attack.
func (w *Watcher) crowd(l *load, verdict Verdict, facts Facts) {
	if w.at.Sub(l.crowded) < crowdEvery {
		return
	}
	l.crowded = w.at
	w.tell(Event{Text: fmt.Sprintf("no attack, but a %s at %s", verdict, facts.Text()), Data: &Turn{State: Crowded, At: l.name, Facts: &facts}})
}

// judge evaluates the counters and samples of a second.
func (w *Watcher) judge(t *operate.Top, oneIn uint32, lost uint64) {
	w.oneIn = oneIn
	w.latest = append(w.latest[max(0, len(w.latest)-beginSeconds+1):], t)
	all := t.Passed.Packets + t.Dropped.Packets
	before := w.now
	lasted := ends
	turns := w.traffic.second(w.at, all)
	for _, l := range w.traffic.loads() { // services first: they are the most specific
		switch turns[l] {
		case begins:
			packets := all
			if l != w.traffic.total {
				packets = l.perSecond(&l.in, oneSecond)
			}
			w.slowly(l, packets)
		case lasts:
			lasted = lasts
		}
	}
	if w.now == nil {
		w.quiet()
		return
	}
	w.traffic.openings.take() // openings during an attack may be from attackers
	if before == w.now && !w.now.calm() {
		w.now.count(t, w.at)
	}
	if before == nil {
		w.lost = lost
	}
	w.now.lost = lost - w.lost
	w.renew()
	if w.now.ended() { // one part that lasts too long must not end the other parts
		w.over(lasted)
		return
	}
	w.search()
	if w.at.Sub(w.kept) >= keepEvery {
		w.keep()
	}
}

// renew updates the report.
func (w *Watcher) renew() {
	for i := range w.now.joined {
		w.now.joined[i].judge(w.traffic, w.at)
	}
	w.now.oneIn = w.oneIn
	w.now.renew(w.at, w.now.lost, w.traffic.total.perSecond(&w.traffic.total.in, riseTenths))
	w.show()
}

// attack begins the report of an attack on a load.
func (w *Watcher) attack(l *load, bound float64) {
	t := w.latest[len(w.latest)-1]
	usual, _ := w.traffic.total.level(w.at)
	started, above := w.beginning(l)
	c := newCollecting(Report{
		ID: started.Format("20060102-150405"), Started: started, Policy: t.Policy, Generation: t.Generation, Target: t.Target, Devices: t.Devices,
		Usual: usual, Bound: bound, Reasons: []Reason{}, Vectors: []Vector{},
	}, w.databases)
	for i := range w.recent {
		if w.recent[i].Time.After(started) {
			c.see(&seen{Sample: suggest.NewSample(w.recent[i])}, false)
		}
	}
	if good, err := w.good(); err == nil {
		c.usual = shares(good)
		w.traffic.knows(good)
	}
	for _, t := range w.latest[len(w.latest)-above:] {
		c.count(t, w.at)
	}
	w.recent = nil
	w.learned.forget()
	w.openings.forget()
	w.now = c
}

// quiet handles a second without an attack: the baseline learns the packets that passed.
func (w *Watcher) quiet() {
	w.traffic.discover(w.at)
	if w.at.Sub(w.knew) >= learnDelay {
		w.knew = w.at
		if good, err := w.good(); err == nil {
			w.traffic.knows(good)
		}
	}
	if w.at.Sub(w.scanned) < scanAfter { // packets of a scan are no baseline: their sender may be forged
		w.recent = nil
		w.learned.forget()
		w.traffic.openings.take()
		w.openings.forget()
	}
	if !w.traffic.above() {
		for _, s := range w.recent {
			if s.Verdict == "pass" {
				w.learned.add(s)
			}
		}
		w.recent = nil
	}
	w.learned.learn(w.at)
	for _, s := range w.traffic.openings.take() {
		w.openings.add(s)
	}
	if w.openings.learn(w.at) > 0 {
		w.firsts = samplesOf(w.openings.samples)
	}
	if w.at.Sub(w.kept) >= saveEvery && !w.replays() {
		w.keepUsual()
	}
}

// over ends the attack and its report. turn tells why the attack ended.
func (w *Watcher) over(turn change) {
	end := w.now.report.last()
	w.now.report.Ended = &end
	if turn == lasts {
		w.now.report.Note = fmt.Sprintf("the rate has lasted for %v, and is taken for usual from now on", longest)
	}
	w.keep()
	text := w.now.report.Headline()
	w.say(Over, fmt.Sprintf("%s: over after %s; `floodwall attacks %s` shows the report", text, w.now.report.Lasted(), w.now.report.ID))
	for _, j := range w.now.joined {
		j.load.rate.begin(0)
	}
	if w.replays() {
		w.none()
		return
	}
	if err := w.store.prune(); err != nil {
		w.fail(err)
	}
	w.none()
	w.keepUsual()
}

// none clears the current attack.
func (w *Watcher) none() {
	w.now = nil
	w.current.Store(nil)
}

// keep writes the report to the store.
func (w *Watcher) keep() {
	w.kept = w.at
	if w.replays() {
		return
	}
	if err := w.store.save(&w.now.report, w.now.captured); err != nil {
		w.fail(err)
	}
}

// say sends an event about the current attack.
func (w *Watcher) say(state, text string) {
	t := &Turn{State: state, Attack: w.now.report.Summary()}
	if s := w.now.report.Suggestion; s != nil {
		t.Rules = len(s.Rules)
	}
	w.tell(Event{Text: text, Data: t})
}

// fail reports an error. It does not report the same error again until another error comes.
func (w *Watcher) fail(err error) {
	if w.failed != err.Error() {
		w.failed = err.Error()
		w.tell(Event{Err: err})
	}
}
