// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// talks sends random datagrams to a server during a flood. begin prepares the state of the server and its clients. It returns a function that sends a
// datagram. Each of the reasons in names must decide many datagrams.
func (f flooded) talks(t *testing.T, reasons map[string]int, names []string, begin func() (send func())) {
	t.Helper()
	for range testutil.Scaled(10, 10_000) {
		f.forget(t)
		f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
		const unit = 36 // bits of nanoseconds: COOKIE_UNIT
		unitAt := func(later time.Duration) time.Duration { return (image.Monotonic() + later) >> unit }
		for unitAt(-time.Second) != unitAt(3*time.Second) { // the program's clock is coarse, and cookies change with the unit
			time.Sleep(100 * time.Millisecond)
		}
		began := unitAt(0)
		send := begin()
		for range 1000 {
			if unitAt(time.Second) == began { // on a busy machine the unit may have ended
				send()
			}
		}
	}
	for _, name := range names {
		if reasons[name] < 200 {
			t.Errorf("%d packets are decided by %s, want more for a test of it: %v", reasons[name], name, reasons)
		}
	}
	t.Logf("%v", reasons)
}

// talkClient returns a random client of one of two servers.
func talkClient(r *rand.Rand) string {
	if r.IntN(4) == 0 {
		return fmt.Sprintf("udp [2001:db8::%x]:4000 > [2001:db8:1::%x]:7000", 1+r.IntN(5), 1+r.IntN(2))
	}
	return fmt.Sprintf("udp 198.51.100.%d:4000 > 192.0.2.%d:7000", 1+r.IntN(5), 1+r.IntN(2))
}

// flooding returns the World w, changed to that of a flood that has used up the rate for all unknown clients.
func (f flooded) flooding(w ir.World) ir.World {
	var queries []int
	for i := range f.program.Rules {
		if f.program.Rules[i].Name == "game:queries" {
			queries = f.program.Rules[i].Over
		}
	}
	w.Calm = func(int, *packet.Packet) bool { return false }
	w.Over = func(limit int, _ *packet.Packet) bool { return !slices.Contains(queries, limit) }
	w.Spent = func(int, *packet.Packet) bool { return true }
	return w
}

// decidesAs checks that the program answers a question about a frame with the decision of ir.Eval.
func (f flooded) decidesAs(t *testing.T, client string, frame []byte, verdict ir.Verdict, want string) {
	t.Helper()
	a, err := f.AskAt(datapath.Question{Frame: frame})
	if err != nil {
		t.Fatal(err)
	}
	got := "default"
	if at := int(a.Slot) - image.SlotRules; at >= 0 && at < len(f.program.Rules) {
		got = f.program.Rules[at].Name
	}
	if strings.HasPrefix(want, "game") && got != want || ir.Verdict(a.Verdict) != verdict {
		t.Fatalf("%x from %s: %s at %s; ir.Eval says %s at %s", frame, client, ir.Verdict(a.Verdict), got, verdict, want)
	}
}
