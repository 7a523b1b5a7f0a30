// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// TestFairQueues makes a node send 60,000 bans, one in each message, before the hub has written the first ban. Then another node and the controller
// send one ban each. These two must get their answers before the first node's bans are written. The first node must get Later for bans that do not
// fit into its queue.
func TestFairQueues(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	for _, name := range []string{"evil", "a"} {
		if err := h.Enrol(name, newPublicKey(t)); err != nil {
			t.Fatal(err)
		}
	}
	ban := func(origin string, n int) offer {
		now := time.Now()
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18 + byte(n>>16), byte(n >> 8), byte(n)}), 32)
		return offer{origin: origin, said: wire.Offer{{Prefix: p, Statement: wire.Statement{Origin: origin, Seq: wire.NextSequence(now, 0), Until: now.Add(time.Hour).UnixMilli()}}}}
	}
	const flood = 60_000
	said := make(chan bool)
	others := []chan []wire.Outcome{make(chan []wire.Outcome, 1), make(chan []wire.Outcome, 1)}
	h.view.mu.Lock() // the lock prevents the hub from writing
	go func() {
		for n := range flood {
			h.enqueue(ban("evil", n))
		}
		for i, origin := range []string{"a", wire.Controller} {
			o := ban(origin, flood+i)
			o.done = others[i]
			h.enqueue(o)
		}
		close(said)
	}()
	select {
	case <-said:
	case <-time.After(time.Minute):
		t.Error("one node's messages make those of all others wait")
	}
	h.view.mu.Unlock()
	for i, done := range others {
		select {
		case outcomes := <-done:
			if outcomes[0] != wire.Taken {
				t.Errorf("offer %d of others: %v", i, outcomes)
			}
		case <-time.After(time.Minute):
			t.Fatal("no answer in a minute")
		}
	}
	h.view.mu.Lock()
	if n := h.view.table.Of("evil"); n >= maxWaiting {
		t.Errorf("%d bans of the node that floods are written before those of others", n)
	}
	h.view.mu.Unlock()
	h.drain("evil")
	h.view.mu.Lock()
	defer h.view.mu.Unlock()
	if n := h.view.table.Of("evil"); n == 0 || n > maxWaiting+wire.MaxItems {
		t.Errorf("%d bans of the node that floods are kept, want no more than its queue has space for", n)
	}
}

// TestOfferInParts uses offers that are written in parts, with parts of other offers in between. Each offer must be answered once, for all of its
// statements.
func TestOfferInParts(t *testing.T) {
	t.Parallel()
	q := newQueues()
	q.batch = 100
	sizes := map[string][]int{"a": {150, 0, 3}, "b": {1}, "c": {64, 64}}
	for origin, list := range sizes {
		for _, n := range list {
			if !q.add(&offer{origin: origin, said: make(wire.Offer, n)}) {
				t.Fatal("an offer has no space")
			}
		}
	}
	got, batches := map[string][]int{}, 0
	next := map[*offer]int{}
	for list := q.next(); len(list) > 0; list = q.next() {
		n := 0
		for _, p := range list {
			if p.from != next[p.offer] {
				t.Errorf("a part from %d follows %d", p.from, next[p.offer])
			}
			next[p.offer], n = p.to, n+p.to-p.from
			if p.to == len(p.said) {
				got[p.origin] = append(got[p.origin], len(p.said))
			}
		}
		if batches++; n > q.batch {
			t.Errorf("%d statements at a time, want %d", n, q.batch)
		}
	}
	for origin, want := range sizes {
		if !slices.Equal(got[origin], want) {
			t.Errorf("%s: offers of %v are decided, want %v", origin, got[origin], want)
		}
	}
	if len(q.of)+len(q.count)+len(q.order) > 0 || batches < 3 {
		t.Errorf("%d batches; left: %+v", batches, q)
	}
}
