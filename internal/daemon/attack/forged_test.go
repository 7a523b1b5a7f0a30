// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestForgedCycle plays forged sources with the payloads of players. Each source comes again after all others, and the service answers all of them.
// This must not count as a crowd: it must be reported soon, with advice, and without a rule. The same number of packets from players who continue is
// a crowd.
func TestForgedCycle(t *testing.T) {
	t.Parallel()
	cycle := func(sources int, fresh bool) func(*rand.Rand) (string, string) {
		n := 0
		return func(r *rand.Rand) (string, string) {
			if n++; !fresh {
				n %= sources
			}
			c, p := fmt.Sprintf("77.%d.%d.%d:%d", n>>16, n>>8&255, n&255, 1024+n%60000), fmt.Sprintf("payload=0x%08x%08x", r.Uint32(), r.Uint32())
			return fmt.Sprintf("udp %s > 192.0.2.1:27015 ttl=%d %s", c, 50+n%14, p), fmt.Sprintf("udp 192.0.2.1:27015 > %s %s", c, p)
		}
	}
	for name, next := range map[string]func(*rand.Rand) (string, string){
		"20,000 in a cycle": cycle(20_000, false), "10,000 in a cycle": cycle(10_000, false), "fresh ones": cycle(0, true), "players": talker(1500, "64.7", "27015"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := replayed(t, 7*time.Second, modelled{always(8000), name == "players", next})
			if out.honestDropped+out.attackDropped > 0 {
				t.Errorf("dropped are %d of the honest and %d of the others", out.honestDropped, out.attackDropped)
			}
			if name == "players" {
				if len(out.Reports) > 0 {
					t.Errorf("reported: %+v", out.Reports[0].Parts)
				}
				return
			}
			if len(out.Reports) != 1 || !strings.Contains(strings.Join(out.Reports[0].Advice, "\n"), "udp: protect") {
				t.Fatalf("reports: %+v, %+v", out.Reports, out.Events)
			}
			if r := out.Reports[0]; r.Parts[0].Verdict != Unclear || r.Times.Named > 4 {
				t.Errorf("after %.1f s: %+v", r.Times.Named, r.Parts)
			}
		})
	}
}

// TestSYNsGetCookies plays a flood of SYNs with the options of an operating system, like its clients' SYNs, and one with bytes that no client sends.
// No rule may be added or suggested against SYNs, and the report must name the remedy.
func TestSYNsGetCookies(t *testing.T) {
	t.Parallel()
	for _, options := range []string{windowsOptions, "win=77 tcpopts=mss:537"} {
		out := replayed(t, 6*time.Second, modelled{always(3000), false, func(r *rand.Rand) (string, string) {
			return tcpFrom(fmt.Sprintf("%s:%d", anybody(r), 1024+r.IntN(60000)), 443, "S", r.Uint32(), 0, options), ""
		}})
		if len(out.Reports) != 1 || out.Dropped > 0 || out.Reports[0].Suggestion != nil {
			t.Fatalf("%s: %d packets are dropped: %+v", options, out.Dropped, out.Events)
		}
		if advice := strings.Join(out.Reports[0].Advice, "\n"); !strings.Contains(advice, "`syn: protect`") || !strings.Contains(advice, "tcp/443") {
			t.Errorf("%s: advice %q", options, advice)
		}
	}
}
