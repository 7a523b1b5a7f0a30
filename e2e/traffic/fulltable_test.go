// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// replyTCPOpen and replyUDPOpen are the states of flows that have been answered: see enum reply_state in bpf/replyflow.h.
const (
	replyTCPOpen = 3
	replyUDPOpen = 9
)

// tenants describes the owners of the flows that fill the table.
type tenants struct {
	name   string
	state  uint64
	client func(slot int, r *rand.Rand) uint64 // the number of the flow's client; 0 is the server itself
}

var allTenants = []tenants{
	{"of the server", replyUDPOpen, func(int, *rand.Rand) uint64 { return 0 }},
	{"of two clients", replyTCPOpen, func(slot int, _ *rand.Rand) uint64 { return 1 + uint64(slot%2) }},
	{"of many clients", replyTCPOpen, func(_ int, r *rand.Rand) uint64 { return 1 + r.Uint64N(127) }},
	{"of a client each", replyTCPOpen, func(slot int, _ *rand.Rand) uint64 { return 1 + uint64(slot) }},
}

// replyTable calls use with the memory of the table of reply flows and the memory of its filter. The keys are at the start of the filter.
func (s *scene) replyTable(use func(table, filter []byte)) {
	s.Helper()
	err := s.server.Do(func() error {
		state, err := datapath.OpenState(s.Dir, false)
		if err != nil {
			return err
		}
		running, err := state.Running()
		if err != nil {
			return err
		}
		defer datapath.CloseAll(running)
		memory, err := running[0].Memory(image.ReplyFlows, image.ReplyFilter)
		if err == nil {
			use(memory[image.ReplyFlows], memory[image.ReplyFilter])
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
}

// fill writes flows into all free slots of the table, as bpf/replyleaving.h writes them. The flows are open, answered, and a minute old.
func (s *scene) fill(of tenants, r *rand.Rand) {
	s.Helper()
	s.replyTable(func(words, filter []byte) {
		const unit, minute = 32, 14 // bits of a unit of time, and units
		seen := (uint64(image.Monotonic())>>unit - minute) & 0xffff
		used, bits := filter[image.ReplySecretsSize:], filter[image.ReplySecretsSize+image.ReplyUsedSize:]
		for i := range len(words) / 8 {
			if binary.LittleEndian.Uint64(words[8*i:]) != 0 {
				continue
			}
			bucket, word := i/image.ReplySlots, r.Uint64()>>image.ReplyTagShift<<image.ReplyTagShift|of.client(i%image.ReplySlots, r)<<20|of.state<<16|seen
			binary.LittleEndian.PutUint64(words[8*i:], word)
			used[bucket/8] |= 1 << (bucket % 8)
			set := binary.LittleEndian.Uint32(bits[4*bucket:])
			binary.LittleEndian.PutUint32(bits[4*bucket:], set|image.ReplyBits(word))
		}
	})
}

// replyFlows returns the status of the table of reply flows.
func (s *scene) replyFlows() (of control.ReplyFlowStatus) {
	s.Helper()
	err := s.server.Do(func() error {
		status, err := s.Status(s.ctx)
		if err == nil {
			of = *status.ReplyFlows
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return of
}

// TestFullTable fills the table with answered flows of different owners. In each case, three things must hold: the server's earlier flows continue,
// packets that answer no flow are dropped, and the server can open new flows.
func TestFullTable(t *testing.T) {
	for _, of := range allTenants {
		t.Run(of.name, func(t *testing.T) {
			inScene(t, func(s *scene) { s.full(of) })
		})
	}
}

func (s *scene) full(of tenants) {
	const sockets = 2000
	c := newCrowd(s, sockets)
	s.apply(plan.TargetXDP, "default: drop\nservices: [{name: mark, port: udp/9}]\n") // this enters the connected sockets into the table
	before := s.pushed("10.1.0.1:7001")
	s.fill(of, testutil.Random(s))
	full := s.replyFlows()
	if full.Flows != full.Capacity || full.Refused != 0 {
		s.Fatalf("the table is not full: %+v", full)
	}
	peer := func(f manyFamily) string { return f.peer }
	c.forget()
	c.dropping("before the others ask", sockets/2, func() { c.flood("answer", peerPort, peer) })
	c.answered("the connected ones", sockets/2)
	c.ask()
	c.forget()
	c.answersInFullTable(peer)
	c.onlyAnswers("in a full table")
	if err := s.pushed("10.1.0.1:7002").arrives(); err != nil {
		s.Errorf("a new connection: %v", err)
	}
	if err := before.arrives(); err != nil {
		s.Errorf("a connection of before: %v", err)
	}
	c.forget()
	c.dropping("from another port", sockets, func() { c.flood("forged", strangerPort, peer) })
	c.dropping("from another address", sockets, func() { c.flood("forged", peerPort, func(f manyFamily) string { return f.stranger }) })
	c.answered("forged", 0)
}

// answersInFullTable makes the peer answer all sockets. If two flows of the server are in the same full bucket, they displace each other. How often
// this happens depends on the random secrets of the table. So a socket that gets no answer sends its question again, as a program would.
func (c *crowd) answersInFullTable(peer func(manyFamily) string) {
	c.Helper()
	const tries = 4
	lost := func(i int) bool { return c.got[i] == "" }
	for try := range tries {
		before, came := c.byDefault(), c.read()
		wait := c.size - came
		if try > 0 {
			c.askFrom(lost)
		}
		c.floodTo("answer", peerPort, peer, lost)
		testutil.Eventually(crowdPatience, func() bool {
			now := c.read()
			return now == c.size || now-came+int(c.byDefault()-before) >= wait
		})
		if c.read() == c.size {
			return
		}
	}
	c.Errorf("%d of %d sockets get no answer in %d tries", c.size-c.read(), c.size, tries)
}

// TestFragmentsInFullBucket puts all flows into one full bucket. The entry that announces fragments of a flow is then in the same bucket as the flow.
// The flow must stay in the table.
func TestFragmentsInFullBucket(t *testing.T) {
	inScene(t, func(s *scene) {
		c := newCrowd(s, 4)
		s.apply(plan.TargetXDP, "default: drop\nservices: [{name: mark, port: udp/9}]\n")
		s.fill(allTenants[0], testutil.Random(s))
		s.replyTable(func(_, filter []byte) { clear(filter[:8]) }) // the factor of the index is 0, so all flows are in bucket 0
		peer := func(f manyFamily) string { return f.peer }
		for i := range c.size {
			if c.connected(i) {
				continue
			}
			c.forget()
			this := func(n int) bool { return n == i }
			c.askFrom(this)
			c.floodTo("answer", peerPort, peer, this)
			c.answered("in a bucket with its fragments", 1)
		}
	})
}
