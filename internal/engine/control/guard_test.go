// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
)

// guardedDNS has a service whose guard lets only one large response to an address leave within hours.
const guardedDNS = `
default: pass
services: [{name: dns, port: [udp/53, tcp/53], guard: {type: dns, responses: {rate: 1kbit/h, per: to, burst: 12kbit}, observe: %t}}]
`

func (h *host) guarded(observe bool, confirm time.Duration) {
	h.Helper()
	if _, err := h.try(fmt.Sprintf(guardedDNS, observe), control.ApplyOptions{Confirm: confirm}); err != nil {
		h.Fatal(err)
	}
}

// respond sends n responses to an address on the wire.
func (h *host) respond(n int) {
	h.Helper()
	c, err := net.DialUDP("udp", &net.UDPAddr{Port: 53}, &net.UDPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 1234})
	if err != nil {
		h.Fatal(err)
	}
	defer c.Close()
	for range n {
		if _, err := c.Write(make([]byte, 1400)); err != nil {
			h.Fatal(err)
		}
	}
}

// responses returns the line of status about responses, or nil if there is none.
func (h *host) responses() (found *control.RuleStatus) {
	h.Helper()
	s, err := h.Status(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	for _, r := range s.Rules {
		if r.Name == "dns:responses" && found != nil {
			h.Errorf("status says twice what became of responses")
		} else if r.Name == "dns:responses" {
			found = &r
		}
	}
	return found
}

func (h *host) wantResponses(when string, want uint64) {
	h.Helper()
	if got := h.responses(); got == nil || got.Packets != want || got.Stage != "egress" || got.Line != 4 {
		h.Errorf("%s: %+v, want %d packets, and line 4", when, got, want)
	}
}

// TestGuardCounts applies policies with and without a guard, also on trial, and checks the line of status about responses.
func TestGuardCounts(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.ip("neigh add 192.0.2.7 lladdr 02:00:00:00:00:07 dev fw0")
	h.guarded(false, 0)
	h.respond(4)
	h.wantResponses("one of four may leave", 3)
	if s, err := h.Status(h.Context()); err != nil || s.Verified == nil || *s.Verified != (control.VerifiedStatus{Capacity: 1 << 16}) {
		t.Errorf("status of verified clients %+v, error %v", s.Verified, err)
	}
	h.guarded(true, 0)
	h.wantResponses("applied again", 3)
	h.respond(4)
	h.wantResponses("observed", 6)
	h.apply("default: pass")
	if got := h.responses(); got != nil {
		t.Errorf("without a guard: %+v", got)
	}
	h.respond(4)
	h.guarded(false, time.Minute)
	h.respond(2)
	h.wantResponses("on trial", 1)
	if _, err := h.Rollback(h.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.responses(); got != nil {
		t.Errorf("rolled back: %+v", got)
	}
}
