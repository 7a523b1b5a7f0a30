// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestTrafficLeaves takes samples of all outgoing packets. There must be no sample of a response that a guard drops, or of a reply that the program
// converts to a request, because these do not leave.
func TestTrafficLeaves(t *testing.T) {
	testutil.RequireRoot(t)
	s := subject.Lower(t, `
default: drop
services:
  - {name: game, port: udp/7000, udp: {protect: raknet, total: off}}
  - {name: dns, port: [tcp/53, udp/53], guard: {type: dns, responses: {rate: 8kbit/s, per: to/24/56}}}
detect: {baseline: learn}
`)
	x, err := xdpgen.Generate(s.Program, xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	f := flooded{talker{s.Load(t, x)}, s.Program}
	samples, err := f.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	defer samples.Close()
	if err := samples.SetShares(datapath.Shares{Leaving: image.Share(1)}); err != nil {
		t.Fatal(err)
	}
	read := func() int { return trafficSamples(t, samples, func(datapath.Sample) {}) }

	const all, drop = 100, 2 // TCX_DROP
	frame := subject.FramesOf(t, "udp 192.0.2.53:53 > 198.51.100.7:1234 len=1500")[0].Frame
	leave := 0
	for range all {
		action, _, err := f.Egress().Test(frame)
		if err != nil {
			t.Fatal(err)
		}
		if action != drop {
			leave++
		}
	}
	if leave == 0 || leave == all {
		t.Fatalf("of %d responses %d leave", all, leave)
	}
	if got := read(); got != leave {
		t.Errorf("of %d responses %d leave, and %d are sampled", all, leave, got)
	}

	const client = "udp 198.51.100.7:4000 > 192.0.2.1:7000"
	f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
	f.leave(t, left(t, client, reply1("", 1464)))
	if got := read(); got != 1 {
		t.Errorf("of a reply %d samples are taken", got)
	}
	reply, _ := f.answered(t, arrived(t, client, request1(11, 1172)))
	if len(reply) != 32 {
		t.Fatalf("a first request is answered with % x", reply)
	}
	f.passed(t, arrived(t, client, request2(string(reply[26:30]), false, 1200)))
	f.turned(t, left(t, client, reply1("", 67)), request2("", false, 1200))
	if got := read(); got != 0 {
		t.Errorf("of a reply that is turned back %d samples are taken", got)
	}
}
