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

// Collateral is the most of the legitimate samples that suggested rules may match, as a share.
const Collateral = 0.001

const (
	keepEvery     = 5 * time.Second  // at most between two times that the report of an attack that goes on is written
	resumeWithin  = 10 * time.Minute // in which a daemon that starts takes an attack up that another one saw
	leastBaseline = 500              // samples without which a learned baseline says nothing
)

// Watcher looks for attacks while the policy that runs says so.
type Watcher struct {
	host   operate.Host
	store  Store
	tell   func(Event)
	clock  func() time.Time
	list   func() ([]datapath.Connection, error)
	change func(context.Context, func([]manifest.Temporary) ([]manifest.Temporary, error)) error // of the rules that the daemon has added by itself

	traffic  *traffic
	learned  baseline
	recent   []sample.Sample // of the last seconds: they are of an attack that is about to begin
	latest   []*operate.Top  // the last beginSeconds of them
	before   *control.Status // the counters of the last second,
	read     time.Time       // and when they were read
	scanned  time.Time       // when the last scan was seen
	knew     time.Time       // when the senders of the baseline were taken over
	at       time.Time
	ticked   time.Time
	oneIn    uint32
	settings policy.Detect
	kept     time.Time // when the baseline was written
	failed   string    // the error that was told last
	lost     uint64

	connections []datapath.Connection // that the kernel has,
	listErr     error
	listed      time.Time // until when they are taken for right

	filed    []suggest.Sample // the baseline, of a file
	fileRead time.Time

	databases geo.Databases // of countries and autonomous systems

	proposed *Suggestion // the one that automatic rules were taken from last
	earlier  []string    // automatic rules of attacks before, the latest first: what returns meets them at once

	now     *collecting            // nil in quiet times
	current atomic.Pointer[Report] // of it, as it was a second ago, for others
}

// New makes a Watcher that tells what happens. The host must have a Tap.
func New(h operate.Host, store Store, tell func(Event)) *Watcher {
	return &Watcher{
		host: h, store: store, tell: tell, clock: time.Now, list: datapath.Open, traffic: newTraffic(0, 0),
		change: func(ctx context.Context, change func([]manifest.Temporary) ([]manifest.Temporary, error)) error {
			return h.ChangeTemporaryOf(ctx, Automatic, change)
		},
	}
}

// replays reports whether this is a replay, which writes nothing.
func (w *Watcher) replays() bool { return w.store == (Store{}) }

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
	r.Reasons, r.Outcomes = nil, nil // they are counted further
	w.current.Store(&r)
}

// Run looks for attacks until ctx ends. What goes on then is written, for the next daemon to take up.
func (w *Watcher) Run(ctx context.Context) {
	f := w.host.Tap.FollowBoth()
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

// sample takes a sample.
func (w *Watcher) sample(s sample.Sample) {
	seen := w.traffic.sample(&s, w.oneIn)
	switch {
	case s.Verdict == sample.Leaves, s.Verdict == sample.Forwarded:
	case w.now != nil:
		w.now.see(s, seen, w.now.calm())
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
}

// tick looks at the samples of the last moments, ten times a second while there are any.
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
	}
}

// rise has a load that has risen, for so long, be an attack or a part of the one that goes on, or it tells of a crowd.
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
		usual, bound := l.level(w.at)
		begins := w.now == nil
		if begins {
			w.attack(usual, bound)
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

// slowly takes a load whose seconds are above the bound of the last minutes. By the hour of the week it may be usual. A crowd teaches what is usual, and a
// scan nothing: its sender may be forged.
func (w *Watcher) slowly(l *load, packets float64) {
	if _, bound := l.level(w.at); packets <= bound {
		l.rate.dismiss(packets)
		return
	}
	if l.risen.IsZero() && w.at.Sub(w.ticked) < ticksLate { // the samples of now tell that it has ended
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

// ticksLate is after how long without a sample the counters alone decide.
const ticksLate = 2 * time.Second

// lasts is for how long a load has risen. One that has no samples, as where nobody takes any, has risen for long enough.
func (w *Watcher) lasts(l *load) time.Duration {
	if l.risen.IsZero() {
		return goOnFor
	}
	return w.at.Sub(l.risen)
}

// scanAfter is for how long after a scan nothing is learned.
const scanAfter = 5 * time.Second

// crowdEvery is at least between two times that the crowd at one place is told of.
const crowdEvery = 10 * time.Minute

// crowd tells that a load has risen which is no attack.
func (w *Watcher) crowd(l *load, verdict Verdict, facts Facts) {
	if w.at.Sub(l.crowded) < crowdEvery {
		return
	}
	l.crowded = w.at
	w.tell(Event{Text: fmt.Sprintf("no attack, but a %s at %s", verdict, facts.Text()), Data: &Turn{State: Crowded, At: l.name, Facts: &facts}})
}

// judge takes what a second brought.
func (w *Watcher) judge(t *operate.Top, oneIn uint32, lost uint64) {
	w.oneIn = oneIn
	w.latest = append(w.latest[max(0, len(w.latest)-beginSeconds+1):], t)
	all := t.Passed.Packets + t.Dropped.Packets
	before := w.now
	lasted := ends
	turns := w.traffic.second(w.at, all)
	for _, l := range w.traffic.loads() { // services first: they say most
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
	if before == w.now && !w.now.calm() {
		w.now.count(t, w.at)
	}
	if before == nil {
		w.lost = lost
	}
	w.now.lost = lost - w.lost
	w.renew()
	if w.now.ended() { // a part that lasts for too long ends the others no sooner
		w.over(lasted)
		return
	}
	w.search()
	if w.at.Sub(w.kept) >= keepEvery {
		w.keep()
	}
}

// renew brings the report up to date.
func (w *Watcher) renew() {
	for i := range w.now.joined {
		w.now.joined[i].judge(w.traffic, w.at)
	}
	w.now.oneIn = w.oneIn
	w.now.renew(w.at, w.now.lost, w.traffic.total.perSecond(&w.traffic.total.in, riseTenths))
	w.show()
}

// attack begins a report.
func (w *Watcher) attack(usual, bound float64) {
	t := w.latest[len(w.latest)-1]
	above := 0 // seconds that it took to see it
	for above < len(w.latest) {
		if t := w.latest[len(w.latest)-1-above]; t.Passed.Packets+t.Dropped.Packets <= bound {
			break
		}
		above++
	}
	started := w.at.Add(-max(time.Duration(above)*time.Second, riseTenths*tenth)).UTC()
	c := newCollecting(Report{
		ID: started.Format("20060102-150405"), Started: started, Policy: t.Policy, Generation: t.Generation, Target: t.Target, Devices: t.Devices,
		Usual: usual, Bound: bound, Reasons: []Reason{}, Vectors: []Vector{},
	}, w.databases)
	for i := range w.recent {
		if w.recent[i].Time.After(started) {
			c.see(w.recent[i], nil, false)
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
	w.now = c
}

// quiet is a second without an attack: what passed teaches the baseline.
func (w *Watcher) quiet() {
	w.traffic.discover(w.at)
	if w.at.Sub(w.knew) >= learnDelay {
		w.knew = w.at
		if good, err := w.good(); err == nil {
			w.traffic.knows(good)
		}
	}
	if w.at.Sub(w.scanned) < scanAfter { // its packets are no baseline: who it is may be forged
		w.recent = nil
		w.learned.forget()
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
	if w.at.Sub(w.kept) >= saveEvery && !w.replays() {
		w.keepUsual()
	}
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

// none has no attack go on.
func (w *Watcher) none() {
	w.now = nil
	w.current.Store(nil)
}

// keep writes the report.
func (w *Watcher) keep() {
	w.kept = w.at
	if w.replays() {
		return
	}
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
	w.traffic = newTraffic(0, 0)
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
