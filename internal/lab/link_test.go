// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestQueue asks the kernel for the queues of the ends of a link.
func TestQueue(t *testing.T) {
	o := plainLink
	o.A.Queue = true
	p := newPairOn(t, o)
	queue := func(d *Device) (kind string) {
		list, err := d.Host.links.QdiscList(d.link)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range list {
			kind += q.Type()
		}
		return kind
	}
	if a, b := queue(p.a), queue(p.b); a != "pfifo_fast" || b != "noqueue" {
		t.Errorf("the end with a queue has %q, the other %q; want pfifo_fast and noqueue", a, b)
	}
}

// TestFirst compares the priorities of the threads of two ends.
func TestFirst(t *testing.T) {
	o := plainLink
	o.A.First = true
	p := newPairOn(t, o)
	priority := func(d *Device) uint32 {
		attr, err := unix.SchedGetAttr(d.napi, 0)
		if err != nil || attr.Policy != unix.SCHED_RR {
			t.Fatalf("thread of %s: %+v, %v; want SCHED_RR", d.Name, attr, err)
		}
		return attr.Priority
	}
	if a, b := priority(p.a), priority(p.b); a <= b {
		t.Errorf("the first end has priority %d, another %d", a, b)
	}
}

// sleeps returns how often a thread went to sleep so far.
func sleeps(t *testing.T, pid int) (n uint64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "voluntary_ctxt_switches: %d", &n); err == nil {
			return n
		}
	}
	t.Fatalf("no number of switches in\n%s", status)
	return 0
}

// TestCoalesce sends to an end that polls every 20 ms. The packets arrive much more often.
func TestCoalesce(t *testing.T) {
	const every = 20 * time.Millisecond
	p := newPair(t)
	p.sink(t, p.b, DropAll)
	if err := p.b.Coalesce(every); err != nil {
		t.Fatal(err)
	}
	before, start := sleeps(t, p.b.napi), time.Now()
	const n = 1000
	p.send(t, SourceOptions{Flows: []Flow{plain}, Rate: 5000, Count: n})
	await(t, "every packet is received or refused", func() bool {
		taken, refused := received(t, p.b)
		return taken+refused == n
	})
	// After each successful poll there may be some without a packet. After these, the next packet wakes the thread.
	most := (1 + emptyLooks) * (uint64(time.Since(start)/every) + 2)
	if slept := sleeps(t, p.b.napi) - before; slept > most {
		t.Errorf("the receive thread slept %d times, want at most %d", slept, most)
	}
}
