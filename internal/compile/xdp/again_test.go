// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// againAt returns the rule that decides a frame that arrives at a time. It uses a question that charges limits and records the frame.
func (f flooded) againAt(t *testing.T, frame []byte, at time.Duration) string {
	t.Helper()
	a, err := f.AskAt(datapath.Question{Frame: frame, Now: at, Charge: true})
	if err != nil {
		t.Fatal(err)
	}
	return f.program.Rules[int(a.Slot)-image.SlotRules].Name
}

// TestComesAgain sends packets of new clients during a flood. The flood's first packets have used up half of the limit for all clients. A client that
// repeats its packet in time must pass, until the limit is used up. The generated entry and general() must record and find the same packets.
func TestComesAgain(t *testing.T) {
	const burst = 8
	stray := map[string][]byte{"generic": {0}, "wireguard": wireguard(4, 0, 9), "quic": quicLong(2, make([]byte, 8), nil, 60)}
	begins := map[string][]byte{"generic": {0}, "wireguard": wireguard(1, 1, 0), "quic": quicLong(0, make([]byte, 8), nil, 1200)}
	for _, protocol := range []string{"generic", "wireguard", "quic"} {
		f := loadFlooded(t, fmt.Sprintf("{protect: %s, limit: off, total: {rate: 1/h, burst: %d}}", protocol, burst))
		f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
		first := map[string]int{}
		for i := range 2 * burst {
			first[f.reason(t, arrived(t, fmt.Sprintf("udp 10.0.%d.1:4000 > 192.0.2.1:7000", i), begins[protocol]))]++
		}
		if first["game"] != burst/2 || first["game:total"] != 2*burst-burst/2 {
			t.Errorf("%s: first packets are counted at %v, want half of the burst at game", protocol, first)
		}
		refused := "game:total"
		if protocol != "generic" {
			refused = "game:stray"
		}
		second := (time.Duration(image.Monotonic())/ir.AgainUnit + 100) * ir.AgainUnit // the start of a unit
		client := func(n int, payload []byte) []byte {
			if n%2 == 0 {
				return arrived(t, fmt.Sprintf("udp [2001:db8::%x]:4000 > [2001:db8::1]:7000", n), payload)
			}
			return arrived(t, fmt.Sprintf("udp 198.51.100.%d:4000 > 192.0.2.1:7000", n), payload)
		}
		for n, again := range []struct {
			after  time.Duration
			passes bool
		}{{ir.AgainUnit - 1, false}, {ir.AgainUnit, true}, {ir.AgainMost * ir.AgainUnit, true}, {(ir.AgainMost + 1) * ir.AgainUnit, false}} {
			f.againAt(t, client(n, begins[protocol]), second)
			got := f.againAt(t, client(n, stray[protocol]), second+again.after)
			if want := map[bool]string{true: "game:again", false: refused}[again.passes]; got != want {
				t.Errorf("%s: %v after it was refused a packet is counted at %s, want %s", protocol, again.after, got, want)
			}
		}
		// With the present clock, in the entry. One of two clients is recorded by general().
		entry, general := client(11, begins[protocol]), client(12, begins[protocol])
		now := time.Duration(image.Monotonic())
		if a, b := f.reason(t, entry), f.againAt(t, general, now); a != "game:total" || b != a {
			t.Errorf("%s: first packets are counted at %s and %s, want game:total", protocol, a, b)
		}
		time.Sleep(2 * ir.AgainUnit)
		if a, b := f.reason(t, general), f.againAt(t, entry, time.Duration(image.Monotonic())); a != "game:again" || b != a {
			t.Errorf("%s: packets that come again are counted at %s and %s, want game:again", protocol, a, b)
		}
		for i := range 2 { // the burst is used up
			if got := f.reason(t, client(11+i, stray[protocol])); got != refused {
				t.Errorf("%s: when the limit for all is used up, a packet that comes again is counted at %s, want %s", protocol, got, refused)
			}
		}
	}
}
