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

// keepTries is how often a record is written when other hubs write the same one meanwhile, and keepWait for how long: a command waits longer.
const (
	keepTries = 8
	keepWait  = answerWait / 2
)

// written is a record on its way to the stream.
type written struct {
	wire.Record
	number uint64 // of the message that it replaces
	ack    jetstream.PubAckFuture
	err    error // why it is not known to be kept
}

// keep writes what offers change to the stream, tells all nodes, and answers.
func (h *Hub) keep(ctx context.Context, list []part) {
	began := time.Now()
	order, of := h.sort(list, began)
	n := len(order)
	why := h.store.writable()
	for try := 0; len(order) > 0 && why == nil; try++ {
		suspect := h.store.suspect()
		kept, again := h.write(ctx, order, of)
		if len(kept) > 0 {
			_ = h.send(wire.Live, kept, 0) // nodes that miss it ask
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

// write writes the records of prefixes. It returns those that are in the stream, and the prefixes to be tried again.
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

// gone refuses the ban of a node that was revoked while the ban was on its way: its bans have been lifted, and this one would stay.
func (h *Hub) gone(s wire.Statement) error {
	if h.server == nil || s.Lift() || s.Origin == wire.Controller || h.members.joined(s.Origin) {
		return nil
	}
	return fmt.Errorf("node %s is not of the fleet", s.Origin)
}

// publish sends a record to the stream, on the condition that its last message of the prefix has this number.
func (h *Hub) publish(r wire.Record, number uint64) (jetstream.PubAckFuture, error) {
	m := &nats.Msg{Subject: wire.BanSubject(r.Prefix), Data: wire.EncodeRecord(r)}
	return h.js.PublishMsgAsync(m, jetstream.WithExpectLastSequencePerSubject(number), jetstream.WithMsgTTL(lifetime(r, time.Now())))
}

// lifetime is how long the stream needs a record: until its last statement counts no more. It only saves space.
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

// refresh reads the records of which the stream has another message than was thought: another hub has written, or an earlier write of this
// hub that was in doubt has arrived. It returns those, which nodes may not have. It waits once for all when the stream has no leader or too
// few hubs: thousands of writes fail at a time then, and offers wait meanwhile.
func (h *Hub) refresh(ctx context.Context, failed []written) (found []wire.Stored) {
	newer := slices.DeleteFunc(slices.Clone(failed), func(w written) bool { return !outrun(w.err) })
	if len(newer) < len(failed) {
		periodic.Sleep(ctx, streamWait/10)
	}
	for _, w := range newer {
		if r, number := h.view.get(w.Prefix); number != w.number { // the message has come from the stream
			found = append(found, wire.Stored{Number: number, Record: r})
			continue
		}
		m, err := h.last(ctx, w.Prefix)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			h.view.forget(w.Prefix)
			continue
		case err != nil:
			return found // the stream does not answer: all are tried again
		}
		if r, err := wire.ParseRecord(m.Data); err == nil && r.Prefix == w.Prefix {
			h.view.take(r, m.Sequence)
			found = append(found, wire.Stored{Number: m.Sequence, Record: r})
		}
	}
	return found
}

// outrun tells whether a write failed as the prefix has a newer message.
func outrun(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

// last reads the message of a prefix from the stream.
func (h *Hub) last(ctx context.Context, p netip.Prefix) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, ackWait)
	defer cancel()
	return h.bans.GetLastMsgForSubject(ctx, wire.BanSubject(p))
}

// forget notes that the stream has no message of a prefix: its time has passed.
func (v *view) forget(p netip.Prefix) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.numbers, p)
}
