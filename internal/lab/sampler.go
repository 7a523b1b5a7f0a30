package lab

import "time"

// sampler reports intervals of a load while it runs.
type sampler struct {
	client *client
	ended  chan time.Duration // receives the time in which requests began
	done   chan struct{}      // closed: all requests have a result
	quit   chan struct{}      // closed: the last interval was reported
}

func (c *client) startSampler() *sampler {
	s := &sampler{c, make(chan time.Duration), make(chan struct{}), make(chan struct{})}
	go s.run()
	return s
}

// over ends the time in which requests start, and returns its length.
func (s *sampler) over() time.Duration {
	s.client.record.over()
	took := time.Since(s.client.began)
	s.ended <- took
	return took
}

// stop waits until the last interval was reported.
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
			// Shortly after a tick the interval is too short: its requests are reported with the rest.
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

// report reports an interval. A late interval is reported only if something happened in it.
func (s *sampler) report(late bool) {
	sample := s.client.record.interval(time.Since(s.client.began), late)
	if s.client.OnSample != nil && (!late || sample.OK+sample.Failed > 0) {
		s.client.OnSample(sample)
	}
}
