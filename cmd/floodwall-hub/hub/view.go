// SPDX-License-Identifier: Apache-2.0

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

// view is this hub's copy of the stream.
type view struct {
	mu      sync.Mutex
	table   wire.Table
	numbers map[netip.Prefix]uint64 // number of the last message of each prefix
	through uint64                  // all messages up to this number have been received
	epoch   uint64                  // identifies the stream by the time when it was made
}

// take adds a record from the stream.
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

// after returns the records with greater numbers, sorted by number. It also returns the number up to which the list is complete.
func (v *view) after(number uint64) (list []wire.Stored, through uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	list = make([]wire.Stored, 0, v.atMost(number)) // allocated once, because hundreds of nodes send requests at the same time after a partition
	for r := range v.table.All() {
		if n := v.numbers[r.Prefix]; n > number {
			list = append(list, wire.Stored{Number: n, Record: r.Without(now)})
		}
	}
	slices.SortFunc(list, func(a, b wire.Stored) int { return cmp.Compare(a.Number, b.Number) })
	return list, v.through
}

// most returns an upper limit of the number of records with greater numbers. It is cheap to compute.
func (v *view) most(number uint64) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.atMost(number)
}

func (v *view) atMost(number uint64) int {
	return int(min(v.through-min(number, v.through), uint64(v.table.Len())))
}

// sweep removes expired records.
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

// follow reads the stream of bans from its start, and then its new messages.
func (h *Hub) follow(ctx context.Context, s jetstream.Stream) error {
	info, err := s.Info(ctx)
	if err != nil {
		return fmt.Errorf("stream %s: %w", banStream, err)
	}
	h.view.epoch = uint64(info.Created.UnixNano())
	if info.State.Msgs == 0 {
		h.view.reached(info.State.LastSeq) // messages up to this number that are missing have expired
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

// followMembers reads the members of the fleet, and disconnects nodes that have left.
func (h *Hub) followMembers(ctx context.Context, s jetstream.Stream) error {
	return h.consume(ctx, s, func(m jetstream.Msg, at *jetstream.MsgMetadata) {
		if member, err := parseMember(m.Data()); err == nil && h.members.set(member, at.Sequence.Stream) {
			h.auth.disconnect(member.Name)
			h.sights.Forget(member.Name)
		}
	})
}

// consume calls take with each message of a stream in order, while the hub runs.
func (h *Hub) consume(ctx context.Context, s jetstream.Stream, take func(jetstream.Msg, *jetstream.MsgMetadata)) error {
	c, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	return h.deliver(ctx, c, take)
}

// deliver does the same as consume, for an existing consumer.
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

// maxChunk is the approximate size limit of a message with records, in bytes.
const maxChunk = 128 << 10

// send publishes records in messages of limited size. If through is not 0, the last message tells the receiver that it then has all records up to
// through.
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

// asked answers a node that has missed records.
func (h *Hub) asked(m *nats.Msg) {
	node, err := h.sender(m)
	after, parseErr := wire.ParseAfter(m.Data)
	if err != nil || parseErr != nil || !h.rates.sync(node, time.Now(), h.view.most(uint64(after))) {
		return
	}
	list, through := h.view.after(uint64(after))
	_ = h.send(m.Reply, list, through) // an error means that the connection is down, and the node sends its request again
}

// beat sends a pulse to nodes periodically until ctx ends: the time, and the number of the last record.
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
