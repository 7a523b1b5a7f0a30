// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
)

// TestLimitOnce sends packets of one source, as from the wire, through both paths of the program. The entry decides packets to one port. general()
// decides packets to another port, because a rule after the limit tests their payload. 32 packets go alternately to both ports. Each packet must be
// charged once, so the burst must pass.
func TestLimitOnce(t *testing.T) {
	const four, six = "udp 192.0.2.1:5 > 198.51.100.1:%d len=100", "udp [2001:db8::1]:5 > [2001:db8::2]:%d len=100"
	for by, limit := range limitsBy() {
		lines := []string{four, six}
		if by == "source" {
			lines = append(lines, four+" vlan=7", "tcp 192.0.2.1:5 > 198.51.100.1:%d . seq=1 ack=1 len=100",
				"tcp [2001:db8::1]:5 > [2001:db8::2]:%d . seq=1 ack=1 len=100")
		}
		for i, line := range lines {
			inBytes := i%2 == 0
			t.Run(fmt.Sprintf("by %s %s bytes=%t", by, line, inBytes), func(t *testing.T) {
				t.Parallel()
				chargedOnce(t, limit, line, inBytes)
			})
		}
	}
}

// limitsBy returns limits by all combinations of source and destination prefixes.
func limitsBy() map[string]ir.Limit {
	hosts, nets := &ir.Prefixes{V4: 32, V6: 128}, &ir.Prefixes{V4: 16, V6: 48}
	return map[string]ir.Limit{
		"source": {Src: hosts}, "net": {Src: nets}, "destination": {Dst: &ir.Prefixes{V4: 24, V6: 64}},
		"both": {Src: nets, Dst: hosts}, "neither": {}, "all": {Src: &ir.Prefixes{}},
	}
}

func chargedOnce(t *testing.T, limit ir.Limit, line string, inBytes bool) {
	const burst, packets = 100, 150
	l := loadLimited(t, twoWays(limit, burst, inBytes))
	passed := 0
	for i := range packets {
		frame := subject.FramesOf(t, fmt.Sprintf(line, 1000+i/16%2))[0].Frame
		action, _, err := l.Native().Test(frame)
		if err != nil {
			t.Fatal(err)
		}
		if action != xdpDrop {
			passed++
		}
	}
	if passed != burst {
		t.Errorf("%d of %d packets passed, want %d", passed, packets, burst)
	}
}

// twoWays returns a program that limits packets to a burst, and to one packet a day after that. burst is the number of packets. If inBytes is set,
// the limit is in bits instead, with 100 bytes for each packet. After the limit, a rule tests the payload of packets to port 1001.
func twoWays(limit ir.Limit, burst uint64, inBytes bool) *ir.Program {
	limit.Rule, limit.Rate, limit.Per, limit.Burst, limit.Max = "limit", 1, 24*time.Hour, burst, 1000
	if inBytes {
		limit.Bits, limit.Rate, limit.Burst = true, 100*8, burst*100*8
	}
	ports := []ir.Range{{First: 1001, Last: 1001}, {First: packet.PortUDP + 1001, Last: packet.PortUDP + 1001}}
	return &ir.Program{
		Limits: []ir.Limit{limit},
		Rules: []ir.Rule{
			{Name: "limit", Verdict: ir.Drop, Over: []int{0}},
			{Name: "payload", Verdict: ir.Drop, Match: []ir.Match{{Field: packet.DPort, Values: ports}},
				Payload: []ir.PayloadMatch{{Any: []ir.Pattern{{Text: []byte("absent"), Within: 64}}}}},
		},
	}
}
