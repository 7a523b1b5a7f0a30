// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// The clients' requests. Each request uses a connection of its own, as if every request came from a different person.
const (
	requestTimeout = time.Second
	sampleTime     = 50 * time.Millisecond
	rateTime       = 2 * sampleTime
)

// Phase is a part of the demonstration, with its results.
type Phase struct {
	Name     string          `json:"name"`
	Requests lab.LoadSummary `json:"requests"`
	Traffic  Traffic         `json:"traffic"`
}

// The numbers of the phases.
const (
	quiet = iota
	exposed
	protected
	phases
)

var phaseNames = [phases]string{"no attack", "no firewall", "Floodwall"}

// answered returns the share of answered requests, from 0 to 1.
func (p *Phase) answered() float64 {
	n := p.Requests.OK + p.Requests.Failed
	if n == 0 {
		return 0
	}
	return float64(p.Requests.OK) / float64(n)
}

// Moment has the results of clients and server in the last interval.
type Moment struct {
	Phase      int           // from 0
	Elapsed    time.Duration // time since the start of the phase
	Interval   time.Duration
	OK, Failed uint64        // requests
	Asked      float64       // requests that start per second
	Slowest    time.Duration // time of the slowest answer, as far as samples show it: their highest 99th percentile
	Traffic    Traffic
	Drops      []Drop // drops since Floodwall was applied
}

// phase is a running phase.
type phase struct {
	show    *show
	number  int
	source  *lab.Source // the source of the flood, or nil
	first   reading
	last    reading
	moment  Moment
	traffic Traffic       // the traffic of the last moment
	rates   []float64     // packets per second from clients, one value for each rateTime
	counted time.Time     // time of the last count
	clients uint64        // packets of the clients at that count
	calm    time.Duration // the first time at which, for a whole sample, nearly all requests were answered; 0: never
	err     error
}

// requests returns the number of requests of a phase.
func (w *show) requests() uint64 {
	return uint64(max(1, w.options.Requests*w.options.Duration.Seconds()))
}

// phase runs the clients for the duration of a phase, and waits until each request was answered or has failed. It shows the results while it runs.
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
	requests.Rate = float64(requests.OK) / w.options.Duration.Seconds() // without the wait for the last answers
	var end reading
	p.read(&end)
	result := Phase{Name: phaseNames[number], Requests: requests, Traffic: end.since(p.first)}
	w.summary.Phases = append(w.summary.Phases, result)
	w.summary.Drops = end.drops
	return p, p.err
}

// read reads all counters into r. It records the first error for the end of the phase.
func (p *phase) read(r *reading) {
	now, err := p.show.scene.read(p.source, p.number == protected)
	if err != nil && p.err == nil {
		p.err = err
	}
	if err == nil {
		*r = now
	}
}

// sample adds a sample of the clients. When it has enough samples, it shows a moment.
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
		p.last = before // samples came late and together, and a rate over so short a time would say nothing
	}
	m.Traffic = p.traffic
	m.Drops = p.last.drops
	p.show.viewer.Moment(*m)
	p.moment = Moment{Elapsed: s.Time}
}

// count records the current rate of packets from the clients.
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
