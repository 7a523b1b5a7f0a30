// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestOnAttack floods a host that has the first policy of `floodwall on`. The operator wrote nothing, and must see each attack by its kind. The daemon
// may add no rule.
func TestOnAttack(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newOnHost(t)
	h.serve("0.0.0.0:22", "0.0.0.0:80")
	echoUDP(t, "0.0.0.0:27015")
	said := h.done()
	if !strings.Contains(said, "the daemon names attacks in `floodwall attacks` and on its page, and adds no rule by itself") || strings.Contains(said, "does not run") {
		t.Errorf("on says:\n%s", said)
	}
	if said := mustFloodwall(t, "attacks"); !strings.Contains(said, "no attack is known") || !strings.Contains(said, "while it runs") {
		t.Errorf("without a daemon:\n%s", said)
	}
	daemon := startDaemon(t)
	waitFor(t, "that the daemon knows what is usual", func() bool {
		return strings.HasSuffix(mustFloodwall(t, "attacks"), "The daemon looks for attacks\n") && !strings.Contains(mustFloodwall(t, "status"), "\ndetect: ")
	})
	random := rand.New(rand.NewPCG(1, 1))
	for _, flood := range []struct{ packet, kind string }{
		{"tcp %s > 192.0.2.1:80 S", "SYN flood"},
		{"udp %s > 192.0.2.1:27015 len=100", "UDP flood"},
	} {
		var packets []string
		for range 500 {
			from := fmt.Sprintf("%d.%d.%d.%d:%d", 1+random.IntN(9), random.IntN(256), random.IntN(256), 1+random.IntN(254), 1024+random.IntN(60000))
			packets = append(packets, fmt.Sprintf(flood.packet, from))
		}
		stop := sendMeanwhile(t, "fw1", 50*time.Millisecond, packets...)
		waitFor(t, flood.kind, func() bool {
			said := mustFloodwall(t, "status")
			return strings.Contains(mustFloodwall(t, "attacks"), flood.kind) && strings.Contains(said, "\nattack at ") && strings.Contains(said, flood.kind)
		})
		stop()
	}
	if !strings.Contains(daemon.said.String(), ": SYN flood at ") {
		t.Errorf("the daemon said:\n%s", daemon.said)
	}
	if said := mustFloodwall(t, "temporary"); strings.Contains(said, "auto") {
		t.Errorf("the daemon added a rule:\n%s", said)
	}
}
