// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// TestAuto floods a service that is protected automatically, while clients use the service.
func TestAuto(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 2, 1500, func(s *synScene) {
				s.echo()
				s.protect("start: 2000/s, stop: 1000/s", "")
				l := s.newLoad(5, 3)
				l.while(time.Second)
				if p, counts := s.status(); p.Active || counts["answered"] > 0 {
					t.Errorf("before the flood: %+v, %v", p, counts)
				}
				l.during("the flood")
				flood := s.flood(10_000)
				s.wait(true, synPatience)
				l.while(time.Second)
				ended := flood()
				l.during("the time after the flood")
				s.wait(false, synPatience)
				took := time.Since(ended)
				l.while(time.Second) // handshakes that began with cookies end in this second
				if took < 8*time.Second {
					t.Errorf("cookies end %v after the flood", took)
				}
				_, counts := s.status()
				if counts["answered"] == 0 || counts["proved"] == 0 {
					t.Errorf("the flood passed: %v", counts)
				}
				l.during("the time after cookies")
				l.while(time.Second)
				if p, after := s.status(); after["answered"] != counts["answered"] {
					t.Errorf("SYNs are still answered: %d, and then %d: %+v", counts["answered"], after["answered"], p)
				}
				l.end()
			})
		})
	}
}

// flood makes the second client send SYNs at a rate in packets per second from random addresses, until end is called.
func (s *synScene) flood(pps float64) (end func() time.Time) {
	s.Helper()
	source, err := s.lab.NewSource(s.ends[1], lab.SourceOptions{
		Flows: []lab.Flow{{
			From: lab.MustAddrs("128.0.0.0/2"), To: lab.Addr(servers[0].Addr()), Proto: lab.TCP, Flags: lab.SYN, Options: lab.SYNOptions,
			SPort: lab.AnyPort, DPort: lab.Port(servers[0].Port()),
		}},
		Rate: pps, Batch: 16,
	})
	if err != nil {
		s.Fatal(err)
	}
	ctx, stop := context.WithTimeout(s.ctx, synPatience)
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	return func() time.Time {
		s.Helper()
		for source.Sent() < uint64(pps) && ctx.Err() == nil { // a busy machine takes longer
			time.Sleep(10 * time.Millisecond)
		}
		stop()
		if err := <-done; err != nil {
			s.Error(err)
		}
		if source.Sent() < uint64(pps) {
			s.Errorf("only %d SYNs were sent: the test shows nothing", source.Sent())
		}
		return time.Now()
	}
}

// wait waits until cookies are active, or until they are inactive if active is false. It fails the test after the time atMost.
func (s *synScene) wait(active bool, atMost time.Duration) {
	s.Helper()
	for end := time.Now().Add(atMost); ; time.Sleep(100 * time.Millisecond) { // a status reads all counters
		p, counts := s.status()
		if p.Active == active {
			return
		}
		if time.Now().After(end) {
			s.Errorf("after %v cookies are active: %t; %v", atMost, p.Active, counts)
			return
		}
	}
}
