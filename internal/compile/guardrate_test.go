// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
)

// TestGuardRates writes the same rates of a guard per second, per minute and per hour. In a flood of one minute, as many queries as both rates
// together allow must not be dropped. All further queries must be dropped. They must not get a truncated answer either.
func TestGuardRates(t *testing.T) {
	for _, rates := range []string{"total: {rate: 20/s, burst: 20}, replies: {rate: 10/s, burst: 10}",
		"total: {rate: 1200/min, burst: 20}, replies: {rate: 600/min, burst: 10}", "total: {rate: 72000/h, burst: 20}, replies: {rate: 10/s, burst: 10}"} {
		s := subject.Lower(t, "default: pass\nservices: [{name: dns, port: udp/53, guard: {type: dns, limit: off, "+rates+"}}]\n")
		limiter, left := ir.NewLimiter(s.Program), 0
		for i := range 12_000 {
			now := time.Hour + time.Duration(i)*5*time.Millisecond
			pkt := subject.FramesOf(t, "udp 198.51.100.9:5 > 192.0.2.1:53 dns=A,example.com")[0].Packet()
			verdict, _ := s.Program.Eval(&pkt, ir.World{Over: func(limit int, pkt *packet.Packet) bool { return limiter.Over(limit, pkt, now) }})
			if verdict != ir.Drop {
				left++
			}
		}
		if want := 60*30 + 30; left < want-60 || left > want+60 {
			t.Errorf("{%s}: %d queries of a minute are not dropped, want %d", rates, left, want)
		}
	}
}
