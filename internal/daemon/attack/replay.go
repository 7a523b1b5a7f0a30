package attack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// Replay is a recorded attack, for which detection is to run as it would on a host: by the times of its packets, with each of them a sample,
// and with rules in force ReplayDelay after they were decided.
type Replay struct {
	Attack   string        // a capture
	Baseline string        // a capture of quiet times; "": the attack's own begins with them
	Hosts    []netip.Addr  // this host's addresses; none: the one that most packets are to or from
	Detect   policy.Detect // settings
}

// ReplayDelay is how long a rule takes to be in the kernel.
const ReplayDelay = 200 * time.Millisecond

// Replayed is what detection would have done.
type Replayed struct {
	Hosts   []netip.Addr `json:"hosts"`
	Seconds float64      `json:"seconds"` // of the attack's capture
	Arrived uint64       `json:"arrived"` // packets of it
	Dropped uint64       `json:"dropped"` // by automatic rules
	Left    uint64       `json:"left"`    // packets that this host sent
	Events  []Turned     `json:"events"`
	Reports []*Report    `json:"reports"` // of the attacks that it would have seen
}

// Turned is an event at a time after the capture's first packet.
type Turned struct {
	Seconds float64 `json:"seconds"`
	Text    string  `json:"text"`
}

// shortBaseline is an error.
type shortBaseline struct {
	file string
	span time.Duration
}

func (e *shortBaseline) Error() string {
	return fmt.Sprintf("%s spans %.1f s: what is usual is not known by so little", e.file, e.span.Seconds())
}

// Hint is the remedy.
func (e *shortBaseline) Hint() string {
	return fmt.Sprintf("give a capture of at least %d s of quiet times with --baseline", leastSeconds+2)
}

// Run runs detection. It is an error when a file cannot be read, or when the baseline is too short.
func (r *Replay) Run(ctx context.Context) (*Replayed, error) {
	out := &Replayed{Hosts: r.Hosts, Events: []Turned{}, Reports: []*Report{}}
	if len(out.Hosts) == 0 {
		host, err := busiest(r.Attack)
		if err != nil {
			return nil, err
		}
		out.Hosts = []netip.Addr{host}
	}
	p := newReplayer(r, out)
	if r.Baseline != "" {
		span, err := p.play(ctx, r.Baseline)
		if err != nil {
			return nil, err
		}
		if span < (leastSeconds+2)*time.Second {
			return nil, &shortBaseline{r.Baseline, span}
		}
	}
	p.begin = p.now
	p.counts = true
	span, err := p.play(ctx, r.Attack)
	if err != nil {
		return nil, err
	}
	p.second(ctx)
	out.Seconds = span.Seconds()
	p.keep()
	return out, nil
}

// busiest is the address that most packets of a capture are to or from.
func busiest(file string) (netip.Addr, error) {
	list, _, packets, err := suggest.ReadFile(file, suggest.MostAttack, 0)
	if err != nil {
		return netip.Addr{}, err
	}
	if packets == 0 {
		return netip.Addr{}, fmt.Errorf("%s: there is no IP packet in it", file)
	}
	counter := sample.NewCounter[netip.Addr](1024)
	for i := range list {
		counter.Add(list[i].Dst)
		counter.Add(list[i].Src)
	}
	return counter.Top(1)[0].Key, nil
}

// replayer plays packets to a Watcher.
type replayer struct {
	*Watcher
	out    *Replayed
	counts bool // the attack's capture is played
	begin  time.Time
	now    time.Time // of the packet
	next   time.Time // when the second ends
	start  time.Time // of the clock of the Watcher

	passed, dropped operate.Amount // in this second
	inForce         []ruleOfReplay
	status          *control.Status
}

type ruleOfReplay struct {
	manifest.Temporary
	*suggest.Signature
	from  time.Time
	drops bool
}

func newReplayer(r *Replay, out *Replayed) *replayer {
	p := &replayer{out: out, status: &control.Status{}, start: time.Now()}
	p.now, p.next = p.start, p.start.Add(time.Second)
	p.Watcher = New(operate.Host{}, Store{}, func(e Event) {
		text := e.Text
		if e.Err != nil {
			text = e.Err.Error()
		}
		out.Events = append(out.Events, Turned{p.now.Sub(p.begin).Seconds(), text})
	})
	p.clock = func() time.Time { return p.now }
	p.list = func() ([]datapath.Connection, error) { return nil, nil }
	p.change = p.put
	p.settings = r.Detect
	p.settings.On = true
	p.settings.Baseline = cmp.Or(r.Baseline, r.Detect.Baseline)
	p.traffic = newTraffic(r.Detect.Least, r.Detect.Quiet)
	p.before = p.status
	return p
}

// put has rules be in force after ReplayDelay.
func (p *replayer) put(_ context.Context, change func([]manifest.Temporary) ([]manifest.Temporary, error)) error {
	var own []manifest.Temporary
	for _, r := range p.inForce {
		own = append(own, r.Temporary)
	}
	list, err := change(own)
	if err != nil {
		return err
	}
	p.inForce, p.status.Rules = nil, nil
	for _, t := range list {
		s, _, err := suggest.ReadSignature(t.Rule)
		if err != nil {
			return err
		}
		t.Ends = 0
		p.inForce = append(p.inForce, ruleOfReplay{t, s, p.now.Add(ReplayDelay), t.Rule != observing(t.Rule)})
		p.status.Rules = append(p.status.Rules, control.RuleStatus{Name: t.Name, Temporary: &t})
	}
	return nil
}

// longestGap is how much of a time without packets is played.
const longestGap = 2 * time.Minute

// play plays a capture from the present on, and returns the time that it spans.
func (p *replayer) play(ctx context.Context, file string) (time.Duration, error) {
	in, err := sample.OpenFile(file)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	var first time.Time
	begin, started := p.now, p.now
	for ctx.Err() == nil {
		f, err := in.Read()
		if errors.Is(err, io.EOF) {
			return p.now.Sub(started), nil
		}
		if err != nil {
			return 0, err
		}
		if first.IsZero() {
			first = f.Time
		}
		at := begin.Add(f.Time.Sub(first))
		if gap := at.Sub(p.now) - longestGap; gap > 0 { // nothing happens in the rest of it
			begin, at = begin.Add(-gap), at.Add(-gap)
		}
		if at.After(p.now) { // packets of several devices are not in order
			p.until(ctx, at)
		}
		p.packet(&f)
	}
	return 0, ctx.Err()
}

// until has the time go on.
func (p *replayer) until(ctx context.Context, at time.Time) {
	for !p.next.After(at) && ctx.Err() == nil {
		p.now = p.next
		p.second(ctx)
		p.next = p.next.Add(time.Second)
	}
	p.now = at
	if at.Sub(p.ticked) >= tenth {
		p.ticked = at
		p.tick(ctx, at)
		p.endless()
	}
}

// endless leaves the end of rules by the kernel's clock out: it does not go on with this one.
func (p *replayer) endless() {
	if p.Watcher.now == nil || p.Watcher.now.auto == nil {
		return
	}
	for _, r := range p.Watcher.now.auto.rules {
		r.Ends = 0
	}
}

// packet has one arrive or leave.
func (p *replayer) packet(f *sample.Sample) {
	s := suggest.NewSample(f.Frame, f.Length)
	if s.Kind != packet.IP {
		return
	}
	out := sample.Sample{Length: f.Length, Frame: f.Frame, Time: p.now, Stands: 1, Verdict: ir.Pass.String()}
	if slices.Contains(p.out.Hosts, s.Src) && !slices.Contains(p.out.Hosts, s.Dst) {
		out.Verdict = sample.Leaves
		if p.counts {
			p.out.Left++
		}
		p.sample(out)
		return
	}
	one := operate.Amount{Packets: 1, Bytes: uint64(f.Length)}
	if slices.ContainsFunc(p.inForce, func(r ruleOfReplay) bool { return r.drops && !p.now.Before(r.from) && r.Has(&s) }) {
		out.Verdict = ir.Drop.String()
		p.dropped.Add(one)
	} else {
		p.passed.Add(one)
	}
	if p.counts {
		p.out.Arrived++
		if out.Verdict != ir.Pass.String() {
			p.out.Dropped++
		}
	}
	p.sample(out)
}

// second ends a second.
func (p *replayer) second(ctx context.Context) {
	p.at, p.read = p.now, p.now
	t := &operate.Top{Policy: "replay", Seconds: 1, Reasons: []operate.ReasonRate{}}
	t.Passed = operate.Rate{Packets: float64(p.passed.Packets), Bits: 8 * float64(p.passed.Bytes)}
	t.Dropped = operate.Rate{Packets: float64(p.dropped.Packets), Bits: 8 * float64(p.dropped.Bytes)}
	p.passed, p.dropped = operate.Amount{}, operate.Amount{}
	before := p.Watcher.now
	p.judge(t, 1, 0)
	if before != nil && p.Watcher.now == nil {
		p.out.Reports = append(p.out.Reports, &before.report)
	}
	p.automate(ctx)
	p.endless()
}

// keep keeps the report of an attack that has no end in the capture.
func (p *replayer) keep() {
	if p.Watcher.now != nil {
		p.renew()
		p.out.Reports = append(p.out.Reports, &p.Watcher.now.report)
	}
}
