// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/policy"
)

// TestReturns applies a policy without protection for a while, in which clients connect. Then it returns to the policy with protection in each
// possible way. The protection must recognize these connections at once, before a client sends anything on them.
func TestReturns(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.target = plan.TargetXDP
				s.echo()
				if mode == "router" {
					s.track()
				}
				rollback := func() error { _, err := s.Rollback(s.ctx); return err }
				for _, way := range []struct {
					name  string
					trial time.Duration
					back  func() error
				}{
					{"rollback", 0, rollback},
					{"rollback of a trial", time.Hour, rollback},
					{"a trial ends", 2 * time.Second, func() error { time.Sleep(2300 * time.Millisecond); return rollback() }},
				} {
					s.sub(way.name, func(s *synScene) { s.returns(way.trial, way.back) })
				}
			})
		})
	}
}

// returns applies a policy without protection, and then calls back, which returns to the policy with protection. If trial is not 0, the policy
// without protection is on trial for this time.
func (s *synScene) returns(trial time.Duration, back func() error) {
	s.protect(always+", flows: 1000", "")
	before, _ := s.status()
	err := s.protects.Do(func() error {
		p, err := policy.Parse("policy.yaml", []byte(s.source("off")))
		if err == nil {
			_, err = s.Apply(s.ctx, p, control.ApplyOptions{Target: s.target, Confirm: trial})
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	var open []net.Conn
	for _, to := range servers {
		for range 3 {
			c, err := s.dial(s.clients[0], to)
			if err != nil {
				s.Fatal(err)
			}
			defer c.Close()
			open = append(open, c)
		}
	}
	if err := s.protects.Do(back); err != nil {
		s.Fatal(err)
	}
	if p, _ := s.status(); p.Service != "web" || p.Flows.Entries < before.Flows.Entries+len(open) {
		s.Errorf("%q: %d connections are known, %d before and %d since", p.Service, p.Flows.Entries, before.Flows.Entries, len(open))
	}
}
