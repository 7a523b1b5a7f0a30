// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"testing"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// TestEvalConnections tests a rule that allows two connections, with different numbers of open connections in the World.
func TestEvalConnections(t *testing.T) {
	rule := Rule{Name: "rule", Verdict: Drop, Connections: &ConnLimit{Most: 2, Src: &Prefixes{32, 64}},
		Match: []Match{{Field: packet.State, Values: ranges.Of(packet.StateNew)}}}
	p := &Program{Default: Pass, Rules: []Rule{rule}}
	for _, test := range []struct {
		open int
		line string
		want Verdict
	}{
		{0, syn4, Pass}, {1, syn4, Pass}, {2, syn4, Drop}, {3, syn4, Drop}, {3, syn4 + " state=established", Pass}, {3, syn4 + " state=untracked", Pass},
	} {
		pkt := decode(t, test.line)
		got, _ := p.Eval(&pkt, World{Connections: func(r *Rule, _ *packet.Packet) int {
			if r != &p.Rules[0] {
				t.Errorf("asked for another rule, %q", r.Name)
			}
			return test.open
		}})
		if got != test.want {
			t.Errorf("%s with %d connections: %s, want %s", test.line, test.open, got, test.want)
		}
	}
	pkt := decode(t, syn4)
	if got, _ := p.Eval(&pkt, World{}); got != Pass {
		t.Errorf("in a world without connections: %s", got)
	}
}
