package demo

import (
	"context"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// What the clients do: each request is a connection of its own, as of people who do not know each other.
const (
	requestTimeout = time.Second
	sampleTime     = 50 * time.Millisecond
	rateTime       = 2 * sampleTime
)

// Phase is a part of the demonstration, and what came of it.
type Phase struct {
	Name     string          `json:"name"`
	Requests lab.LoadSummary `json:"requests"`
	Traffic  Traffic         `json:"traffic"`
}

// The phases, by number.
const (
	quiet = iota
	exposed
	protected
	phases
)

var phaseNames = [phases]string{"no attack", "no firewall", "Floodwall"}

// answered is the share of the requests that were answered, 0 to 1.
func (p *Phase) answered() float64 {
	n := p.Requests.OK + p.Requests.Failed
	if n == 0 {
		return 0
	}
	return float64(p.Requests.OK) / float64(n)
}

// Moment is what clients and server saw in the last interval.
type Moment struct {
	Phase      int           // from 0
	Elapsed    time.Duration // of the phase
	Interval   time.Duration
	OK, Failed uint64        // requests
	Asked      float64       // requests that begin per second
	Slowest    time.Duration // answer; to the resolution of the samples, their 99th percentile
	Traffic    Traffic
	Drops      []Drop // since Floodwall was applied
}

// phase is a phase that is going on.
type phase struct {
	show    *show
	number  int
	source  *lab.Source // of the flood, nil without one
	first   reading
	last    reading
	moment  Moment
	traffic Traffic       // of the last moment
	rates   []float64     // packets per second from clients, in steps of rateTime
	counted time.Time     // when they were counted last,
	clients uint64        // and how many there were
	calm    time.Duration // when, for a whole sample, nearly all requests were answered for the first time; 0: never
	err     error
}

// requests is how many there are in a phase.
func (w *show) requests() uint64 {
	return uint64(max(1, w.options.Requests*w.options.Duration.Seconds()))
}

// phase has the clients ask for the duration of a phase, waits until each request was answered or has failed, and shows
// how they fare.
func (w *show) phase(ctx context.Context, number int, source *lab.Source) (*phase, error) {
	p := &phase{show: w, number: number, source: source}
	p.read(&p.first)
	p.last = p.first
	w.viewer.Phase(number, phaseNames[number])
	requests, err := lab.Load(ctx, lab.LoadOptions{
		Host: w.scene.clients.outside.Host, Apart: true, CPU: w.scene.sourceCPU,
		Server: netip.AddrPortFrom(serverAddr, webPort), Rate: w.options.Requests,
		Timeout: requestTimeout, Requests: w.requests(), Interval: sampleTime, OnSample: p.sample,
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	requests.Rate = float64(requests.OK) / w.options.Duration.Seconds() // without the wait for the last ones
	var end reading
	p.read(&end)
	result := Phase{Name: phaseNames[number], Requests: requests, Traffic: end.since(p.first)}
	w.summary.Phases = append(w.summary.Phases, result)
	w.summary.Drops = end.drops
	return p, p.err
}

// read takes a reading, and keeps what goes wrong for the end of the phase.
func (p *phase) read(r *reading) {
	now, err := p.show.scene.read(p.source, p.number == protected)
	if err != nil && p.err == nil {
		p.err = err
	}
	if err == nil {
		*r = now
	}
}

// sample takes in a sample of the clients, and shows a moment when enough of them are together.
func (p *phase) sample(s lab.Sample) {
	p.count()
	m := &p.moment
	m.OK += s.OK
	m.Failed += s.Failed
	m.Slowest = max(m.Slowest, s.P99)
	if p.calm == 0 && float64(s.OK) >= 0.9*p.show.options.Requests*sampleTime.Seconds() {
		p.calm = s.Time
	}
	if s.Time-m.Elapsed < p.show.viewer.Interval()-sampleTime/2 {
		return
	}
	m.Asked = p.show.options.Requests
	m.Phase, m.Interval, m.Elapsed = p.number, s.Time-m.Elapsed, s.Time
	before := p.last
	p.read(&p.last)
	if p.last.at.Sub(before.at) >= sampleTime {
		p.traffic = p.last.since(before)
	} else {
		p.last = before // samples came late and all at once: a rate over so short a time would say nothing
	}
	m.Traffic = p.traffic
	m.Drops = p.last.drops
	p.show.viewer.Moment(*m)
	p.moment = Moment{Elapsed: s.Time}
}

// count notes how many packets come from the clients.
func (p *phase) count() {
	now := time.Now()
	passed := now.Sub(p.counted)
	if passed < rateTime {
		return
	}
	n, err := p.show.scene.clients.server.Received()
	if err != nil {
		if p.err == nil {
			p.err = err
		}
		return
	}
	if !p.counted.IsZero() {
		p.rates = append(p.rates, float64(n-p.clients)/passed.Seconds())
	}
	p.counted, p.clients = now, n
}
