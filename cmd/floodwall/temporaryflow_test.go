// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestTemporaryHolds adds a temporary rule that drops a flood, on each target. No packet of the flood may reach its socket while policies change: by
// an apply, by a trial that ends by itself, by a trial that is rolled back, and by rollbacks to a policy that was applied before the rule was added.
// Packets of a client must arrive all the time.
func TestTemporaryHolds(t *testing.T) {
	if !inside(t) {
		return
	}
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.yaml"), filepath.Join(dir, "two.yaml")
	for i, file := range []string{one, two} {
		writeFile(t, file, fmt.Sprintf("devices: [fw0]\ndefault: pass\nchecks: off\nrules: [{name: other, proto: udp, port: %d, then: drop}]\n", 7+i))
	}
	clients := received(t)
	flood := arrivals(t, "192.0.2.1:4000")
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		mustFloodwall(t, "apply", one, "--target", target)
		mustFloodwall(t, "apply", two, "--target", target)
		var packets []string
		for i := range 4 {
			packets = append(packets, fmt.Sprintf("udp 198.51.100.%d:123 > 192.0.2.1:4000 len=60", 10+i))
		}
		stop := sendMeanwhile(t, "fw1", 5*time.Millisecond, append(packets, legitimate[0])...)
		waitFor(t, "the flood", func() bool { return flood.Load() > 100 })
		mustFloodwall(t, "temporary", "add", "{name: ntp, proto: udp, sport: 123, then: drop}", "--for", "1h")
		since := clients.Load()
		waitFor(t, "what was on its way", func() bool { return clients.Load() > since+20 })
		testutil.Eventually(time.Minute, func() bool { // until it is read
			read := flood.Load()
			time.Sleep(500 * time.Millisecond)
			return flood.Load() == read
		})
		dropped := func() uint64 { // starts no process, as it is asked often
			list, err := operate.Host{Instance: control.Instance{Dir: datapath.DefaultDir}}.Temporary(t.Context())
			if err != nil || len(list) != 1 {
				t.Fatalf("%s: temporary rules %+v, %v", target, list, err)
			}
			return list[0].Packets
		}
		for _, step := range []struct {
			name string
			do   func()
		}{
			{"rollback", func() { mustFloodwall(t, "rollback") }},
			{"rollback of it", func() { mustFloodwall(t, "rollback") }},
			{"apply", func() { mustFloodwall(t, "apply", one, "--target", target) }},
			{"trial that ends", func() {
				mustFloodwall(t, "apply", two, "--target", target, "--confirm", "2s")
				time.Sleep(2500 * time.Millisecond)
				mustFloodwall(t, "status")
			}},
			{"trial that is given up", func() {
				mustFloodwall(t, "apply", two, "--target", target, "--confirm", "5m")
				mustFloodwall(t, "rollback")
			}},
		} {
			before, came, counted := flood.Load(), clients.Load(), dropped()
			step.do()
			waitFor(t, "packets of the client", func() bool { return clients.Load() > came+20 })
			waitFor(t, "drops by the rule", func() bool { return dropped() > counted })
			if n := flood.Load() - before; n > 0 {
				t.Errorf("%s: %s: %d packets of the flood came through", target, step.name, n)
			}
		}
		stop()
		mustFloodwall(t, "unload")
	}
}

// arrivals returns a counter of the packets that reach a socket.
func arrivals(t *testing.T, address string) *atomic.Int64 {
	t.Helper()
	c, err := net.ListenPacket("udp4", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	n := new(atomic.Int64)
	go func() {
		b := make([]byte, 2000)
		for {
			if _, _, err := c.ReadFrom(b); err != nil {
				return
			}
			n.Add(1)
		}
	}()
	return n
}
