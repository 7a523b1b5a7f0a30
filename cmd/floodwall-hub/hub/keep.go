// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// keepTries is how often a record is written when other hubs write it at the same time. keepWait limits the time for these tries; it is shorter than
// the wait of commands.
const (
	keepTries = 8
	keepWait  = answerWait / 2
)

// written is a record that was sent to the stream.
type written struct {
	wire.Record
	number uint64 // number of the message that the record must replace
	ack    jetstream.PubAckFuture
	err    error // the reason why the record may not be stored
}

// keep writes the changes of offers to the stream, sends them to all nodes, and answers the offers.
func (h *Hub) keep(ctx context.Context, list []part) {
	began := time.Now()
	order, of := h.sort(list, began)
	n := len(order)
	why := h.store.writable()
	for try := 0; len(order) > 0 && why == nil; try++ {
		suspect := h.store.suspect()
		kept, again := h.write(ctx, order, of)
		if len(kept) > 0 {
			_ = h.send(wire.Live, kept, 0) // nodes that miss the message request it
		}
		h.store.wrote(len(kept) > 0 || len(again) == 0)
		why = h.store.writable()
		if order = again; try == keepTries || suspect || ctx.Err() != nil || time.Since(began) > keepWait {
			break
		}
	}
	for _, p := range order {
		for _, o := range of[p] {
			o.later(why)
		}
	}
	h.offers.wrote(n, time.Since(began), h.store.suspect())
	for _, p := range list {
		if p.to == len(p.said) {
			h.answer(p.offer)
		}
	}
}

// write writes the records of prefixes. It returns the records that are in the stream, and the prefixes that must be tried again.
func (h *Hub) write(ctx context.Context, order []netip.Prefix, of map[netip.Prefix][]one) (kept []wire.Stored, again []netip.Prefix) {
	var flying, failed []written
	for _, p := range order {
		after, number, changed := h.admit(p, of[p])
		if !changed {
			continue
		}
		ack, err := h.publish(after, number)
		if err != nil {
			failed = append(failed, written{after, number, nil, err})
			continue
		}
		flying = append(flying, written{after, number, ack, nil})
	}
	for _, w := range flying {
		select {
		case ack := <-w.ack.Ok():
			h.view.take(w.Record, ack.Sequence)
			kept = append(kept, wire.Stored{Number: ack.Sequence, Record: w.Record})
		case w.err = <-w.ack.Err():
			failed = append(failed, w)
		case <-ctx.Done():
			return kept, again
		}
	}
	for _, w := range failed {
		again = append(again, w.Prefix)
	}
	return append(kept, h.refresh(ctx, failed)...), again
}

// admit adds statements to the record of their prefix.
func (h *Hub) admit(p netip.Prefix, list []one) (after wire.Record, number uint64, changed bool) {
	before, number := h.view.get(p)
	after = before.Without(time.Now())
	for _, o := range list {
		if err := h.gone(o.statement()); err != nil {
			o.refuse(err)
			continue
		}
		next, err := wire.Admit(after, o.statement())
		switch {
		case errors.Is(err, wire.ErrEnough):
			o.offer.outcomes[o.at] = wire.Enough
		case err != nil:
			o.refuse(err)
		default:
			after = next
		}
	}
	return after, number, !after.Equal(before) && len(after.Statements) > 0
}

// gone refuses a ban by a node that was revoked before the ban was stored. The node's other bans are already lifted, so nobody would lift this ban.
func (h *Hub) gone(s wire.Statement) error {
	if h.server == nil || s.Lift() || s.Origin == wire.Controller || h.members.joined(s.Origin) {
		return nil
	}
	return fmt.Errorf("node %s is not of the fleet", s.Origin)
}

// publish sends a record to the stream, on the condition that the last message of its prefix has this number.
func (h *Hub) publish(r wire.Record, number uint64) (jetstream.PubAckFuture, error) {
	m := &nats.Msg{Subject: wire.BanSubject(r.Prefix), Data: wire.EncodeRecord(r)}
	return h.js.PublishMsgAsync(m, jetstream.WithExpectLastSequencePerSubject(number), jetstream.WithMsgTTL(lifetime(r, time.Now())))
}

// lifetime returns how long the stream must keep a record: until its last statement has expired. The limit only saves space.
func lifetime(r wire.Record, now time.Time) time.Duration {
	left := time.Minute
	for i := range r.Statements {
		s := &r.Statements[i]
		end := time.UnixMilli(s.Until)
		if s.Lift() {
			end = wire.SequenceTime(s.Seq).Add(wire.Longest + time.Minute)
		}
		left = max(left, end.Sub(now)+time.Minute)
	}
	return left.Truncate(time.Second)
}

// refresh reads records whose last message in the stream has an unexpected number. Either another hub has written, or an earlier write of this hub
// with an unknown result has succeeded. refresh returns the records that it read, because nodes may lack them. If the stream has no leader or too few
// hubs, it waits only once for all records, because thousands of writes fail at the same time then, and offers wait in the meantime.
func (h *Hub) refresh(ctx context.Context, failed []written) (found []wire.Stored) {
	newer := slices.DeleteFunc(slices.Clone(failed), func(w written) bool { return !outrun(w.err) })
	if len(newer) < len(failed) {
		periodic.Sleep(ctx, streamWait/10)
	}
	for _, w := range newer {
		if r, number := h.view.get(w.Prefix); number != w.number { // this hub has received the message in the meantime
			found = append(found, wire.Stored{Number: number, Record: r})
			continue
		}
		m, err := h.last(ctx, w.Prefix)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			h.view.forget(w.Prefix)
			continue
		case err != nil:
			return found // the stream does not answer: all records are tried again
		}
		if r, err := wire.ParseRecord(m.Data); err == nil && r.Prefix == w.Prefix {
			h.view.take(r, m.Sequence)
			found = append(found, wire.Stored{Number: m.Sequence, Record: r})
		}
	}
	return found
}

// outrun reports whether a write failed because the prefix has a newer message.
func outrun(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

// last reads the last message of a prefix from the stream.
func (h *Hub) last(ctx context.Context, p netip.Prefix) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, ackWait)
	defer cancel()
	return h.bans.GetLastMsgForSubject(ctx, wire.BanSubject(p))
}

// forget records that the stream has no message of a prefix, because the record has expired.
func (v *view) forget(p netip.Prefix) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.numbers, p)
}
