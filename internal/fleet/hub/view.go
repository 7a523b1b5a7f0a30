package hub

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// view is what the stream holds, as this hub knows it.
type view struct {
	mu      sync.Mutex
	table   wire.Table
	numbers map[netip.Prefix]uint64 // of the last message of each prefix
	through uint64                  // all messages up to this number have been seen
	epoch   uint64                  // when the stream was made
}

// take takes a record from the stream.
func (v *view) take(r wire.Record, number uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.table.Merge(r)
	if v.numbers == nil {
		v.numbers = map[netip.Prefix]uint64{}
	}
	v.numbers[r.Prefix] = max(v.numbers[r.Prefix], number)
}

func (v *view) get(p netip.Prefix) (wire.Record, uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.table.Get(p), v.numbers[p]
}

func (v *view) reached(number uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.through = max(v.through, number)
}

// after lists the records with greater numbers, in their order, and the number through which the list is complete.
func (v *view) after(number uint64) (list []wire.Stored, through uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	list = make([]wire.Stored, 0, v.atMost(number)) // hundreds of nodes ask at once when a partition has healed
	for r := range v.table.All() {
		if n := v.numbers[r.Prefix]; n > number {
			list = append(list, wire.Stored{Number: n, Record: r.Without(now)})
		}
	}
	slices.SortFunc(list, func(a, b wire.Stored) int { return cmp.Compare(a.Number, b.Number) })
	return list, v.through
}

// most is how many records with greater numbers there are at most. It costs nothing to ask.
func (v *view) most(number uint64) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.atMost(number)
}

func (v *view) atMost(number uint64) int {
	return int(min(v.through-min(number, v.through), uint64(v.table.Len())))
}

// sweep forgets what no longer counts.
func (v *view) sweep(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.table.Sweep(now)
	for p := range v.numbers {
		if len(v.table.Get(p).Statements) == 0 {
			delete(v.numbers, p)
		}
	}
}

// follow reads the stream of bans from its start, and what comes after.
func (h *Hub) follow(ctx context.Context, s jetstream.Stream) error {
	info, err := s.Info(ctx)
	if err != nil {
		return fmt.Errorf("stream %s: %w", banStream, err)
	}
	h.view.epoch = uint64(info.Created.UnixNano())
	if info.State.Msgs == 0 {
		h.view.reached(info.State.LastSeq) // what had these numbers has ended
	}
	return h.consume(ctx, s, func(m jetstream.Msg, at *jetstream.MsgMetadata) {
		if r, err := wire.ParseRecord(m.Data()); err == nil && wire.BanSubject(r.Prefix) == m.Subject() {
			h.view.take(r, at.Sequence.Stream)
		}
		h.view.reached(at.Sequence.Stream)
		if at.NumPending == 0 {
			h.view.reached(info.State.LastSeq)
		}
	})
}

// followMembers reads who belongs to the fleet, and disconnects nodes that no longer do.
func (h *Hub) followMembers(ctx context.Context, s jetstream.Stream) error {
	return h.consume(ctx, s, func(m jetstream.Msg, at *jetstream.MsgMetadata) {
		if member, err := parseMember(m.Data()); err == nil && h.members.set(member, at.Sequence.Stream) {
			h.auth.disconnect(member.Name)
			h.sights.Forget(member.Name)
		}
	})
}

// consume hands out the messages of a stream in their order, for as long as the hub runs.
func (h *Hub) consume(ctx context.Context, s jetstream.Stream, take func(jetstream.Msg, *jetstream.MsgMetadata)) error {
	c, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	return h.deliver(ctx, c, take)
}

// deliver is consume for a consumer that there is.
func (h *Hub) deliver(ctx context.Context, c jetstream.Consumer, take func(jetstream.Msg, *jetstream.MsgMetadata)) error {
	running, err := c.Consume(func(m jetstream.Msg) {
		if at, err := m.Metadata(); err == nil {
			take(m, at)
		}
	})
	if err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	context.AfterFunc(ctx, running.Stop)
	return nil
}

// maxChunk is about how large a message with records becomes, in bytes.
const maxChunk = 128 << 10

// send publishes records in messages that are not too large. The last says through which number the receiver then has all, if
// through is not 0.
func (h *Hub) send(subject string, list []wire.Stored, through uint64) error {
	for {
		n, size := 0, 0
		for n < len(list) && n < wire.MaxItems && size < maxChunk {
			size += 32 + 128*len(list[n].Statements)
			n++
		}
		b := wire.Batch{Now: time.Now(), Epoch: h.view.epoch, Records: list[:n]}
		if list = list[n:]; len(list) == 0 {
			b.Through = through
		}
		if err := h.conn.Publish(subject, b.Bytes()); err != nil || len(list) == 0 {
			return err
		}
	}
}

// asked answers a node that has missed something.
func (h *Hub) asked(m *nats.Msg) {
	node, err := h.sender(m)
	after, parseErr := wire.ParseAfter(m.Data)
	if err != nil || parseErr != nil || !h.rates.sync(node, time.Now(), h.view.most(uint64(after))) {
		return
	}
	list, through := h.view.after(uint64(after))
	_ = h.send(m.Reply, list, through) // the connection is down, and the node asks again
}

// beat tells nodes the time, and the number of the last record, until ctx ends.
func (h *Hub) beat(ctx context.Context) {
	id := rand.Uint64() | 1
	tick := time.NewTicker(wire.BeatEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		h.view.mu.Lock()
		p := wire.Pulse{Hub: id, Now: time.Now(), Epoch: h.view.epoch, Through: h.view.through}
		h.view.mu.Unlock()
		_ = h.conn.Publish(wire.Beat, p.Bytes())
		if n%30 == 0 {
			h.view.sweep(time.Now())
			h.rates.sweep()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
