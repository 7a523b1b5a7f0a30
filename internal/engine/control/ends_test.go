package control_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestWatchFollowsDevices has a device get the Ethernet address that SYNs are for, while Watch runs: they are answered from then on, and
// not when the address is another one again. No address of IP changes.
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
	testutil.Eventually(slow, func() bool { // what comes later would have Watch look, too
		out, err := exec.Command("ip", "-6", "addr", "show", "tentative").Output()
		return err == nil && len(out) == 0
	})
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
