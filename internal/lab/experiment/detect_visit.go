package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
	"github.com/floodwall/floodwall/internal/lab/traffic"
)

// detectPolicy has nothing drop a packet but rules that the daemon adds by itself: what XDP drops is by them.
const detectPolicy = `devices: [` + honestWire + ", " + attackWire + `]
default: pass
checks: off
detect: {baseline: learn, auto: {max: 3}}
services:
  - {name: web, port: [tcp/80, tcp/443]}
  - {name: ssh, port: tcp/22}
  - {name: dns, port: udp/53}
  - {name: game, port: udp/27015}
  - {name: voice, port: udp/9987}
  - {name: small, port: udp/5000}
`

// detectVisit is what came of a case once. Times are from the first packet of the attack on, or of the unusual traffic; 0: never.
type detectVisit struct {
	seen      time.Duration // the daemon said that there is an attack
	named     time.Duration // and of what kind
	suggested time.Duration // a rule
	dropped   time.Duration // XDP dropped the first packet
	calls     int           // times that it said so
	kinds     []string      // that it named
	rules     []string      // that it suggested, and what it did with its own

	attack, honest wire
	later          lab.DriverCounts // of the attack's wire, from laterTime on
	classes        []classLoss
	byRules        uint64 // packets that the counters of the daemon's own rules have
	cpu            float64
	memory         int64
	lasted         time.Duration
	late           time.Duration // the longest that a packet was late
	answers        uint64        // over UDP
	answered       uint64        // requests of clients with real sockets, over TCP
	failed         uint64
}

// wire is what became of packets on a wire.
type wire struct {
	sent    uint64 // by the lab
	dropped uint64 // by XDP
	lost    uint64 // before XDP
}

// share is the part of what came that XDP dropped.
func (w *wire) share() float64 {
	return float64(w.dropped) / float64(max(1, w.sent-w.lost))
}

// classLoss is what is missing of a class of honest packets.
type classLoss struct {
	name          string
	sent, missing uint64
}

// detectScene is a site with the product and the usual mix.
type detectScene struct {
	*detectSite
	*product
	c       *detectCase
	seed    uint64 // of what is not of the usual mix
	known   uint64 // of the usual mix: its clients are those that the daemon has learned
	tcp     *tcpTraffic
	counter *classCounter
}

// inScene runs fn while the usual mix goes on at a site whose daemon knows what is in a directory of state, "" for nothing.
func (b *detectBuilder) inScene(ctx context.Context, c *detectCase, state string, seed uint64, fn func(context.Context, *detectScene) error) error {
	return rig.InLab(ctx, func(l *lab.Lab) (err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s := &detectScene{c: c, seed: seed, known: b.Seed}
		if s.detectSite, err = newDetectSite(l, c.alone); err != nil {
			return err
		}
		defer s.detectSite.close()
		dir, err := b.newDir()
		if err != nil {
			return err
		}
		if s.product, err = newProduct(s.server, b.program, dir); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.product.close()) }()
		if state != "" {
			if err := os.CopyFS(s.state(), os.DirFS(state)); err != nil {
				return err
			}
		}
		if err := s.apply(ctx, detectPolicy); err != nil {
			return err
		}
		// The receive thread needs the program that apply has attached.
		for _, d := range []*lab.Device{s.honest, s.clients} {
			if err := d.Segments(); err != nil {
				return err
			}
		}
		if s.counter, err = newClassCounter(ctx, s.detectSite, slices.Concat(c.Classes(), c.classes, traffic.UsualClasses())); err != nil {
			return err
		}
		if err := s.watch(ctx); err != nil {
			return err
		}
		s.tcp = &tcpTraffic{ctx: ctx, host: s.clients.Host, seed: seed}
		defer s.tcp.running.Wait()
		defer cancel()
		s.tcp.usual(c.usual(0))
		return fn(ctx, s)
	})
}

// teach has a daemon learn the usual mix that comes so many times, and keeps its state in a directory.
func (b *detectBuilder) teach(ctx context.Context, dir string, times float64) error {
	always := func(time.Duration) float64 { return times }
	c := &detectCase{Model: &traffic.Model{}, usual: always}
	return b.inScene(ctx, c, "", b.Seed, func(ctx context.Context, s *detectScene) error {
		if _, err := s.usual(ctx, always, report.Choice(b.Quick, quickLearn, learnTime)); err != nil {
			return err
		}
		if err := s.stop(); err != nil {
			return err
		}
		return os.CopyFS(dir, os.DirFS(s.state()))
	})
}

// usual sends the usual mix for a time.
func (s *detectScene) usual(ctx context.Context, times func(time.Duration) float64, lasts time.Duration) (traffic.Sent, error) {
	return traffic.Send(ctx, s.clients, traffic.Usual(times).Play(s.known), time.Now(), lasts)
}

// visit takes a case once.
func (b *detectBuilder) visit(ctx context.Context, c *detectCase, seed uint64) (v *detectVisit, err error) {
	state, err := b.learn(ctx, c.learned)
	if err != nil {
		return nil, fmt.Errorf("learning: %w", err)
	}
	v = &detectVisit{}
	return v, b.inScene(ctx, c, state, seed, func(ctx context.Context, s *detectScene) error {
		start := func(time.Duration) float64 { return c.usual(0) }
		if _, err := s.usual(ctx, start, report.Choice(b.Quick, quickTime, settleTime)); err != nil {
			return err
		}
		return s.measure(ctx, v, report.Choice(b.Quick, min(quickTime, c.Lasts), c.Lasts))
	})
}

// wires is what the driver counted on both wires, whatever became of it.
type wires struct{ honest, attack lab.DriverCounts }

func (s *detectSite) wires() (w wires, err error) {
	if w.honest, err = s.honest.DriverCounts(); err == nil {
		w.attack, err = s.attack.DriverCounts()
	}
	return w, err
}

// restTime is how long packets that were sent may be on their way, and countTime how long the daemon may take to count them.
const (
	restTime  = 300 * time.Millisecond
	countTime = 1500 * time.Millisecond
)

// laterTime is after how much of a case it is the daemon's rules that count, and not how soon they come. A pulse has gone.
const laterTime = 5 * time.Second

// measure has the traffic of the case come for a time, beside the usual mix.
func (s *detectScene) measure(ctx context.Context, v *detectVisit, lasts time.Duration) error {
	classes, err := s.counter.read(ctx)
	if err != nil {
		return err
	}
	before, err := s.wires()
	if err != nil {
		return err
	}
	usedBefore, err := s.used()
	if err != nil {
		return err
	}
	began := time.Now()
	watching, stop := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { v.dropped = s.firstDrop(watching, before, began) })
	looking.Go(func() { v.named = s.firstName(watching, began) })
	var atLater wires
	looking.Go(func() {
		if wait(watching, laterTime); watching.Err() == nil {
			atLater, _ = s.wires() // without it, later is of the whole time
		}
	})
	sent, failed := s.send(ctx, began, lasts)
	stop()
	looking.Wait()
	usedAfter, err := s.used()
	if err := errors.Join(failed, err); err != nil {
		return err
	}
	v.lasted = time.Since(began)
	v.cpu, v.memory = float64(usedAfter.cpu-usedBefore.cpu)/float64(v.lasted), usedAfter.memory
	v.answered, v.failed = s.tcp.done.Load(), s.tcp.failed.Load()
	wait(ctx, restTime)
	classesAfter, err := s.counter.read(ctx)
	if err != nil {
		return err
	}
	after, err := s.wires()
	if err != nil {
		return err
	}
	v.late = sent.late()
	if lasts > laterTime {
		v.later = after.attack.Since(atLater.attack)
	}
	v.account(sent, classes, classesAfter, after.honest.Since(before.honest), after.attack.Since(before.attack))
	wait(ctx, countTime)
	return s.judge(ctx, v, sent.first(began))
}

// detectSent is what the lab sent itself.
type detectSent struct{ usual, more, attack traffic.Sent }

func (s *detectSent) late() time.Duration { return max(s.usual.Late, s.more.Late, s.attack.Late) }

// first is when the first packet left that is not of the usual mix.
func (s *detectSent) first(began time.Time) time.Time {
	switch {
	case !s.attack.First.IsZero():
		return s.attack.First
	case !s.more.First.IsZero():
		return s.more.First
	}
	return began
}

// send sends the usual mix, and what the case is about.
func (s *detectScene) send(ctx context.Context, began time.Time, lasts time.Duration) (sent detectSent, err error) {
	ctx, cancel := context.WithTimeout(ctx, lasts+restTime)
	defer cancel()
	var sending sync.WaitGroup
	errs := make([]error, 2)
	sending.Go(func() {
		sent.usual, errs[0] = traffic.Send(ctx, s.clients, traffic.Usual(s.c.usual).Play(s.known), began, lasts)
	})
	if s.c.tcp != nil {
		s.c.tcp(s.tcp)
	}
	sending.Go(func() {
		switch {
		case s.c.kernel != nil:
			sent.attack, errs[1] = s.fast(ctx, lasts)
		case s.c.Honest:
			sent.more, errs[1] = traffic.Send(ctx, s.clients, s.c.Play(s.seed), began, lasts)
		default:
			sent.attack, errs[1] = traffic.Send(ctx, s.attacker, s.c.Play(s.seed), began, lasts)
		}
	})
	sending.Wait()
	return sent, errors.Join(errs...)
}

// fastRate is what the kernel sends a second, where it can.
const fastRate = 1e6

// fast sends by the kernel.
func (s *detectScene) fast(ctx context.Context, lasts time.Duration) (sent traffic.Sent, err error) {
	source, err := s.lab.NewSource(s.attacker, lab.SourceOptions{Flows: s.c.kernel, Rate: fastRate, Duration: lasts, Batch: besideBatch, CPU: rig.SourceCPU, Seed: s.seed})
	if err != nil {
		return sent, err
	}
	sent.First = time.Now()
	err = source.Run(ctx)
	sent.Frames = source.Sent()
	return sent, errors.Join(err, source.Close())
}

// lookEvery is how often the counters are looked at, and askEvery how often the daemon is asked.
const (
	lookEvery = 10 * time.Millisecond
	askEvery  = 250 * time.Millisecond
)

// firstDrop waits until XDP has dropped a packet, of whichever wire.
func (s *detectScene) firstDrop(ctx context.Context, before wires, began time.Time) time.Duration {
	for ctx.Err() == nil {
		now, err := s.wires()
		if err == nil && (now.attack.Dropped > before.attack.Dropped || now.honest.Dropped > before.honest.Dropped) {
			return time.Since(began)
		}
		wait(ctx, lookEvery)
	}
	return 0
}

// attackList is what the API tells of attacks.
type attackList struct {
	Attacks []struct {
		ID      string   `json:"id"`
		Vectors []string `json:"vectors"`
	} `json:"attacks"`
}

// firstName asks the daemon until it names what an attack is made of, or until ctx ends.
func (s *detectScene) firstName(ctx context.Context, began time.Time) time.Duration {
	for ; ctx.Err() == nil; wait(ctx, askEvery) {
		var list attackList
		if s.get(ctx, "/v1/attacks", &list) == nil && len(list.Attacks) > 0 && len(list.Attacks[0].Vectors) > 0 {
			return time.Since(began)
		}
	}
	return 0
}

// attackReport is what the API tells of an attack.
type attackReport struct {
	Vectors []struct {
		Name string `json:"name"`
	} `json:"vectors"`
	Suggestion *struct {
		Rules []struct {
			Text string `json:"rule"`
		} `json:"rules"`
	} `json:"suggestion"`
	Steps []struct {
		Time time.Time `json:"time"`
		Did  string    `json:"did"`
		Rule string    `json:"rule"`
		Why  string    `json:"why"`
	} `json:"steps"`
	Reasons []struct {
		Name    string `json:"name"`
		Verdict string `json:"verdict"`
		Packets uint64 `json:"packets"`
	} `json:"reasons"`
}

// judge takes what the daemon told.
func (s *detectScene) judge(ctx context.Context, v *detectVisit, first time.Time) error {
	for _, e := range s.told("attack") {
		since := max(e.at.Sub(first), time.Millisecond)
		switch e.Data.State {
		case "started":
			v.calls++
			v.seen = cmp.Or(v.seen, since)
		case "suggested":
			v.suggested = cmp.Or(v.suggested, since)
		}
		if len(e.Data.Attack.Vectors) > 0 && (v.named == 0 || since < v.named) {
			v.named = since
		}
	}
	var list attackList
	if err := s.get(ctx, "/v1/attacks", &list); err != nil {
		return err
	}
	for i := len(list.Attacks) - 1; i >= 0; i-- { // the earliest first
		var r attackReport
		if err := s.get(ctx, "/v1/attacks/"+list.Attacks[i].ID, &r); err != nil {
			return err
		}
		v.take(&r, first)
	}
	return nil
}

// take takes a report. Reasons have what rules have dropped, without what they counted before they dropped.
func (v *detectVisit) take(r *attackReport, first time.Time) {
	for _, k := range r.Vectors {
		if !slices.Contains(v.kinds, k.Name) {
			v.kinds = append(v.kinds, k.Name)
		}
	}
	if r.Suggestion != nil {
		for _, rule := range r.Suggestion.Rules {
			v.rules = append(v.rules, "suggested: "+rule.Text)
		}
	}
	for _, step := range r.Steps {
		v.rules = append(v.rules, fmt.Sprintf("%s %s after %.1f s: %s", step.Rule, step.Did, step.Time.Sub(first).Seconds(), step.Why))
	}
	for _, reason := range r.Reasons {
		if strings.HasPrefix(reason.Name, "auto-") && reason.Verdict == "drop" {
			v.byRules += reason.Packets
		}
	}
}

// account takes what was counted.
func (v *detectVisit) account(sent detectSent, before, after classCounts, honest, attack lab.DriverCounts) {
	v.attack = wire{sent: sent.attack.Frames, dropped: attack.Dropped, lost: sent.attack.Frames - min(sent.attack.Frames, attack.Received)}
	v.honest.dropped, v.answers = honest.Dropped, after.answers-before.answers
	total := maps.Clone(after.sent)
	for name := range total {
		total[name] -= before.sent[name]
	}
	for _, by := range []map[string]uint64{sent.usual.By, sent.more.By} {
		for name, n := range by {
			total[name] += n
		}
	}
	missing := uint64(0)
	for _, name := range slices.Sorted(maps.Keys(total)) {
		l := classLoss{name: name, sent: total[name]}
		if passed := after.passed[name] - before.passed[name]; passed < l.sent {
			l.missing = l.sent - passed
		}
		if l.sent > 0 {
			v.classes = append(v.classes, l)
		}
		v.honest.sent += l.sent
		missing += l.missing
	}
	v.honest.lost = missing - min(missing, honest.Dropped)
}
