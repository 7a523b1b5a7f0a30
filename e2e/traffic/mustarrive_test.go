// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"testing"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// TestMustArrive tests a datagram whose fragments pass, but which does not pass as a whole. If a rule runs after conntrack, which reassembles
// fragments, the datagram need not arrive.
func TestMustArrive(t *testing.T) {
	a := datagram(false, 80, 1200)
	a.formed, a.total = true, 1208
	body := a.segment(make([]byte, 1200))
	for _, p := range []piece{{0, 760, true}, {760, 1208, false}} {
		ip := a.ipv4(header{ttl: 64}, body[p.from:p.to], p.from, p.more)
		a.frames = append(a.frames, frame{bytes: ethernet(etherIPv4, ip), offset: p.from, size: p.to - p.from, ttl: 64,
			length: uint32(len(ip)), fragment: fragmentValue(p), vlan: packet.VLANNone})
	}
	for _, row := range []struct {
		target plan.Target
		place  plan.Stage
		want   bool
	}{
		{plan.TargetXDP, plan.StageFilter, false},
		{plan.TargetXDP, plan.StageXDP, true},
		{plan.TargetNftables, plan.StageRaw, true},
		{plan.TargetIptables, plan.StageRaw, false},
	} {
		c, err := control.CompileSource("policy.yaml", []byte("devices: [eth0]\nchecks: off\nplacement: "+string(row.place)+
			"\nrules: [{port: udp/80, length: 0-1000, then: pass}, {port: udp/80, then: drop}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		j, err := newJudge(c, row.target)
		if err != nil {
			t.Fatal(err)
		}
		if got := j.must(a); got != row.want {
			t.Errorf("%s, rules at %s: it must arrive: %v, want %v", row.target, row.place, got, row.want)
		}
	}
}
