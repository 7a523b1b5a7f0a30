// SPDX-License-Identifier: Apache-2.0

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

// Replay runs detection on a recorded attack as on a host. The clock is the time of the packets. Each packet counts as a sample. Rules take effect
// ReplayDelay after the decision.
type Replay struct {
	Attack   string        // a capture
	Baseline string        // a capture of quiet times; "": the attack's own capture begins with quiet times
	Hosts    []netip.Addr  // this host's addresses; none: the address that is most often the source or destination
	Detect   policy.Detect // the settings of detection
}

// ReplayDelay is the time that passes until a rule is in the kernel.
const ReplayDelay = 200 * time.Millisecond

// Replayed is the result of a replay.
type Replayed struct {
	Hosts   []netip.Addr `json:"hosts"`
	Seconds float64      `json:"seconds"` // length of the attack's capture
	Arrived uint64       `json:"arrived"` // packets that arrived in the attack's capture
	Dropped uint64       `json:"dropped"` // packets that automatic rules dropped
	Left    uint64       `json:"left"`    // packets that this host sent
	Events  []Turned     `json:"events"`
	Reports []*Report    `json:"reports"` // reports of the detected attacks
}

// Turned is an event, with its time after the capture's first packet.
type Turned struct {
	Seconds float64 `json:"seconds"`
	Text    string  `json:"text"`
}

// shortBaseline is the error for a baseline that is too short.
type shortBaseline struct {
	file string
	span time.Duration
}

func (e *shortBaseline) Error() string {
	return fmt.Sprintf("%s spans %.1f s: what is usual is not known by so little", e.file, e.span.Seconds())
}

// Hint returns the remedy.
func (e *shortBaseline) Hint() string {
	return fmt.Sprintf("give a capture of at least %d s of quiet times with --baseline", leastSeconds+2)
}

// Run runs the replay. It returns an error when a file cannot be read, or when the baseline is too short.
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

// busiest returns the address that is most often the source or destination in a capture.
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

// replayer passes packets to a Watcher.
type replayer struct {
	*Watcher
	out    *Replayed
	counts bool // whether the attack's capture is playing
	begin  time.Time
	now    time.Time // time of the packet
	next   time.Time // when the current second ends
	start  time.Time // start of the Watcher's clock

	passed, dropped operate.Amount // in the current second
	inForce         []ruleOfReplay
	inside          recent[flow, struct{}] // flows that this host began: the replies pass before temporary rules are evaluated
	status          *control.Status
}

type ruleOfReplay struct {
	manifest.Temporary
	*suggest.Signature
	from time.Time
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
	p.delay = ReplayDelay
	p.list = func() ([]datapath.Connection, error) { return nil, nil }
	p.change = p.put
	p.settings = r.Detect
	p.settings.On = true
	p.settings.Baseline = cmp.Or(r.Baseline, r.Detect.Baseline)
	p.traffic = newTraffic(r.Detect.Least, r.Detect.Quiet)
	p.before = p.status
	return p
}

// put makes rules take effect after ReplayDelay.
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
		s, err := suggest.SignatureOf(t.Value)
		if err != nil {
			return err
		}
		t.Ends = 0
		p.inForce = append(p.inForce, ruleOfReplay{t, s, p.now.Add(ReplayDelay)})
		p.status.Rules = append(p.status.Rules, control.RuleStatus{Name: t.Name, Temporary: &t})
	}
	return nil
}

// longestGap is the longest time without packets that is played in full.
const longestGap = 2 * time.Minute

// play plays a capture from the present time on, and returns its time span.
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
		if gap := at.Sub(p.now) - longestGap; gap > 0 { // skip the rest of the gap
			begin, at = begin.Add(-gap), at.Add(-gap)
		}
		if at.After(p.now) { // packets of several devices may be out of order
			p.until(ctx, at)
		}
		p.packet(&f)
	}
	return 0, ctx.Err()
}

// until advances the time.
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

// endless removes the rules' end by the kernel's clock, because that clock does not advance with the replay.
func (p *replayer) endless() {
	if p.Watcher.now == nil || p.Watcher.now.auto == nil {
		return
	}
	for _, r := range p.Watcher.now.auto.rules {
		r.Ends = 0
	}
}

// packet plays an incoming or outgoing packet.
func (p *replayer) packet(f *sample.Sample) {
	s := suggest.NewSample(*f)
	if s.Kind != packet.IP {
		return
	}
	out := *f
	out.Time, out.Stands, out.Verdict = p.now, 1, ir.Pass.String()
	if slices.Contains(p.out.Hosts, s.Src) && !slices.Contains(p.out.Hosts, s.Dst) {
		out.Verdict = sample.Leaves
		if f := s.Value[packet.Flags]; p.traffic.asks(&s) || f != packet.FlagsNone && f&(syn|ack) == syn {
			p.inside.put(left(&s), struct{}{}, p.now)
		}
		if p.counts {
			p.out.Left++
		}
		p.sample(out)
		return
	}
	one := operate.Amount{Packets: 1, Bytes: uint64(f.Length)}
	_, reply := p.inside.get(arrived(&s))
	if !reply && slices.ContainsFunc(p.inForce, func(r ruleOfReplay) bool { return !p.now.Before(r.from) && r.Has(&s) }) {
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

// second ends a second of the replay: the Watcher gets its counters.
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

// keep keeps the report of an attack that does not end in the capture.
func (p *replayer) keep() {
	if p.Watcher.now != nil {
		p.renew()
		p.out.Reports = append(p.out.Reports, &p.Watcher.now.report)
	}
}
