// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// TestWatchFollowsDevices changes the Ethernet address of a device while Watch runs, without changing an IP address. When the device has the address
// to which SYNs are sent, the SYNs must be answered. When the address changes again, they must not be answered.
func TestWatchFollowsDevices(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.apply("services: [{name: web, port: tcp/80, syn: {mode: host, when: always}}]")
	knock := "tcp 192.0.2.7:999 > 192.0.2.1:80 S"
	answers := func() bool {
		before := h.allCounts()["web:answered"]
		h.send(1, knock)
		return h.allCounts()["web:answered"] > before
	}
	if answers() {
		t.Error("a SYN for another host is answered")
	}
	h.settled() // a later change of addresses would also wake Watch
	h.watch()
	for _, step := range []struct {
		address string
		want    bool
	}{{packet.Destination().String(), true}, {"02:00:00:00:00:99", false}} {
		h.ip("link set fw0 address " + step.address)
		for end := time.Now().Add(slow); answers() != step.want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the device has address %s: answered %t", step.address, !step.want)
			}
		}
	}
}
