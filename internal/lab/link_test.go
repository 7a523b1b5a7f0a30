package lab

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestQueue asks the kernel what the ends of a link have for a queue.
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
