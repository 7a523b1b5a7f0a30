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

// States of flows that were answered: enum reply_state of bpf/replyflow.h.
const (
	replyTCPOpen = 3
	replyUDPOpen = 9
)

// tenants say of whom the flows are that fill the table.
type tenants struct {
	name   string
	state  uint64
	client func(slot int, r *rand.Rand) uint64 // 0 is the server itself
}

var allTenants = []tenants{
	{"of the server", replyUDPOpen, func(int, *rand.Rand) uint64 { return 0 }},
	{"of two clients", replyTCPOpen, func(slot int, _ *rand.Rand) uint64 { return 1 + uint64(slot%2) }},
	{"of many clients", replyTCPOpen, func(_ int, r *rand.Rand) uint64 { return 1 + r.Uint64N(127) }},
	{"of a client each", replyTCPOpen, func(slot int, _ *rand.Rand) uint64 { return 1 + uint64(slot) }},
}

// replyTable gives the table of reply flows to a function, and what stands in front of it: keys and filter.
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

// fill writes flows into all free places of the table, as bpf/replyleaving.h would note them: open, answered, and a minute old.
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

// replyFlows is what status says of the table.
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

// TestFullTable has the table full of flows that are answered. The server's own flows of before go on, nothing that answers nothing passes, and
// new flows of the server begin, whoever has the table.
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
	s.apply(plan.TargetXDP, "default: drop\nservices: [{name: mark, port: udp/9}]\n") // which notes the connected sockets
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

// answersInFullTable has the peer answer all sockets. Two flows of the server that meet in a full bucket displace one another, and how many do
// depends on the secrets that the table has drawn, so a socket without an answer asks again, as a program does.
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

// TestFragmentsInFullBucket has all flows meet in one full bucket, so also a flow and the word which says that fragments of it may come. The
// flow stays.
func TestFragmentsInFullBucket(t *testing.T) {
	inScene(t, func(s *scene) {
		c := newCrowd(s, 4)
		s.apply(plan.TargetXDP, "default: drop\nservices: [{name: mark, port: udp/9}]\n")
		s.fill(allTenants[0], testutil.Random(s))
		s.replyTable(func(_, filter []byte) { clear(filter[:8]) }) // the factor of the index: all are in bucket 0
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
