package lab

import "time"

// sampler reports intervals of a load while it runs.
type sampler struct {
	client *client
	ended  chan time.Duration // how long requests began
	done   chan struct{}      // closed: all requests have an outcome
	quit   chan struct{}      // closed: the last interval was reported
}

func (c *client) startSampler() *sampler {
	s := &sampler{c, make(chan time.Duration), make(chan struct{}), make(chan struct{})}
	go s.run()
	return s
}

// over ends the time in which requests begin, and returns how long that was.
func (s *sampler) over() time.Duration {
	s.client.record.over()
	took := time.Since(s.client.began)
	s.ended <- took
	return took
}

// stop returns when the last interval was reported.
func (s *sampler) stop() {
	close(s.done)
	<-s.quit
}

func (s *sampler) run() {
	defer close(s.quit)
	ticker := time.NewTicker(s.client.Interval)
	defer ticker.Stop()
	late := false
	for {
		select {
		case <-ticker.C:
			s.report(late)
		case at := <-s.ended:
			// A moment after a tick, there is no interval to speak of: its requests belong to the rest.
			if last := s.client.record.last; last == 0 || at-last >= s.client.Interval/10 {
				s.report(false)
			}
			late = true
			ticker.Reset(s.client.Interval)
		case <-s.done:
			s.report(true)
			return
		}
	}
}

// report reports an interval. Of the rest, only what happened counts.
func (s *sampler) report(late bool) {
	sample := s.client.record.interval(time.Since(s.client.began), late)
	if s.client.OnSample != nil && (!late || sample.OK+sample.Failed > 0) {
		s.client.OnSample(sample)
	}
}
