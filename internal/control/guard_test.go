package control_test

import (
	"net"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
)

// guarded applies a policy with a guard of UDP port 53, which lets one response to an address leave in an hour.
func (h *host) guarded(observe bool, confirm time.Duration) {
	h.Helper()
	c, err := control.CompileSource("policy.yaml", []byte("devices: [fw0]\ndefault: pass\nrules: [{name: bad, from: 192.0.2.66, then: drop}]\n"))
	if err != nil {
		h.Fatal(err)
	}
	const port = packet.PortUDP + 53
	c.Program.Limits = []ir.Limit{{Rule: "dns", Rate: 1, Per: time.Hour, Burst: 1, Dst: &ir.Prefixes{V4: 32, V6: 64}, Max: 100}}
	c.Program.Guards = []ir.Guard{{Service: "dns", Ports: []ir.Range{{First: port, Last: port}}, Verify: time.Hour, Observe: observe}}
	if _, err := h.Apply(h.Context(), c, control.ApplyOptions{Confirm: confirm}); err != nil {
		h.Fatal(err)
	}
}

// respond sends responses to an address on the wire.
func (h *host) respond(n int) {
	h.Helper()
	c, err := net.DialUDP("udp", &net.UDPAddr{Port: 53}, &net.UDPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 1234})
	if err != nil {
		h.Fatal(err)
	}
	defer c.Close()
	for range n {
		if _, err := c.Write([]byte("response")); err != nil {
			h.Fatal(err)
		}
	}
}

// responses is what status says of them, nil when it says nothing.
func (h *host) responses() *control.RuleStatus {
	h.Helper()
	s, err := h.Status(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	for _, r := range s.Rules {
		if r.Name == "dns:responses" {
			return &r
		}
	}
	return nil
}

func (h *host) wantResponses(when string, want uint64, verdict string) {
	h.Helper()
	got := h.responses()
	if got == nil || got.Packets != want || got.Verdict != verdict || got.Stage != compile.StageEgress {
		h.Errorf("%s: %+v, want %d packets and %s", when, got, want, verdict)
	}
}

// TestGuardCounts applies policies with and without a guard, also on trial, and looks at what status says of responses.
func TestGuardCounts(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.ip("neigh add 192.0.2.7 lladdr 02:00:00:00:00:07 dev fw0")
	h.guarded(false, 0)
	h.respond(4)
	h.wantResponses("one of four may leave", 3, "drop")
	h.guarded(true, 0)
	h.wantResponses("applied again", 3, "pass")
	h.respond(4)
	h.wantResponses("observed", 6, "pass")
	h.apply("default: pass")
	if got := h.responses(); got != nil {
		t.Errorf("without a guard: %+v", got)
	}
	h.respond(4)
	h.guarded(false, time.Minute)
	h.respond(2)
	h.wantResponses("on trial", 1, "drop")
	if _, err := h.Rollback(h.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.responses(); got != nil {
		t.Errorf("rolled back: %+v", got)
	}
}
