package hub

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// What one node may say, and what the fleet holds.
const (
	nodeRate    = 2000      // statements a second of one node
	nodeBurst   = 30        // seconds' worth at once: after a partition a node has much to say
	maxOfNode   = 200_000   // statements of one node
	maxPrefixes = 1_000_000 // when the disk has space for as many
	syncRate    = 1.0       // requests of a node a second for what it has missed; one for syncRecords more counts as one more
	syncBurst   = 120
	syncRecords = 10_000

	messageRate  = nodeRate + 1000 // messages a second of one node: an offer has a statement at least
	messageBurst = 5               // a node waits for the answer to an offer before it sends the next one, so it cannot pile messages up
)

// floodWait is for how long a node that sends more messages is disconnected.
const floodWait = time.Minute

// rates are the allowances of nodes.
type rates struct {
	mu       sync.Mutex
	said     map[string]*wire.Allowance
	syncs    map[string]*wire.Allowance
	sights   map[string]*wire.Allowance
	messages map[string]*wire.Allowance
}

func (r *rates) take(of *map[string]*wire.Allowance, node string, a wire.Allowance, now time.Time, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if *of == nil {
		*of = map[string]*wire.Allowance{}
	}
	if (*of)[node] == nil {
		(*of)[node] = &a
	}
	return (*of)[node].Take(now, n)
}

func (r *rates) statements(node string, now time.Time, n int) bool {
	return r.take(&r.said, node, wire.Allowance{Rate: nodeRate, Burst: nodeBurst}, now, n)
}

func (r *rates) message(node string, now time.Time) bool {
	return r.take(&r.messages, node, wire.Allowance{Rate: messageRate, Burst: messageBurst}, now, 1)
}

func (r *rates) sync(node string, now time.Time, records int) bool {
	return r.take(&r.syncs, node, wire.Allowance{Rate: syncRate, Burst: syncBurst}, now, 1+records/syncRecords)
}

// sweep forgets all when there are many: with an existing cluster names are not ours to give.
func (r *rates) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if max(len(r.said), len(r.syncs), len(r.sights), len(r.messages)) > 100_000 {
		r.said, r.syncs, r.sights, r.messages = nil, nil, nil, nil
	}
}

// offer is what a node, or the controller, says in one message.
type offer struct {
	origin   string
	said     wire.Offer
	reply    string
	outcomes []wire.Outcome
	left     int // statements that are not taken from the queue
	text     string
	done     chan<- []wire.Outcome // takes the outcomes when somebody within the hub waits for them; nil: nobody does
}

// bounded hands on the messages of nodes. All nodes share a subscription, and the messages of one that floods it would take the places of
// others' messages. So that node is disconnected for a while. With an existing cluster its messages are dropped alone.
func (h *Hub) bounded(handle nats.MsgHandler) nats.MsgHandler {
	return func(m *nats.Msg) {
		node, err := wire.NodeOf(m.Subject)
		if err != nil {
			return
		}
		if h.rates.message(node, time.Now()) {
			handle(m)
		} else if h.auth.shut(node, time.Now().Add(floodWait)) {
			h.log(fmt.Sprintf("node %s sends more than %d messages a second: it is disconnected for %v", node, messageRate, floodWait))
		}
	}
}

// sender is the node that sent a request. It is an error when the answer would go to anybody else: the hub may publish where the
// node may not.
func (h *Hub) sender(m *nats.Msg) (string, error) {
	node, err := wire.NodeOf(m.Subject)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(m.Reply, wire.Inbox(node)+".") || strings.ContainsAny(m.Reply, "*> ") {
		return "", fmt.Errorf("node %s wants the answer at %q", node, m.Reply)
	}
	if !h.speaks(node) {
		return "", fmt.Errorf("node %s is not of the fleet", node)
	}
	return node, nil
}

// speaks tells whether a node is of the fleet. One that was revoked may have a message on its way.
func (h *Hub) speaks(node string) bool { return h.server == nil || h.members.joined(node) }

// offered takes what a node says.
func (h *Hub) offered(m *nats.Msg) {
	node, err := h.sender(m)
	if err != nil {
		return
	}
	said, err := wire.ParseOffer(m.Data, node)
	if err != nil {
		return
	}
	o := offer{origin: node, said: said, reply: m.Reply}
	if !h.rates.statements(node, time.Now(), len(said)) {
		o.outcomes = fill(len(said), wire.Later)
		h.answer(&o)
		return
	}
	h.enqueue(o)
}

// enqueue hands an offer to the intake. It never waits: the messages of all nodes come one after the other. An offer of a node that has much in
// its queue is to come later.
func (h *Hub) enqueue(o offer) {
	if !h.offers.add(&o) {
		o.outcomes = fill(len(o.said), wire.Later)
		h.answer(&o)
	}
}

func fill(n int, o wire.Outcome) []wire.Outcome {
	list := make([]wire.Outcome, n)
	for i := range list {
		list[i] = o
	}
	return list
}

// answer tells what became of an offer.
func (h *Hub) answer(o *offer) {
	if o.done != nil {
		o.done <- o.outcomes
	}
	if o.reply != "" {
		_ = h.conn.Publish(o.reply, wire.Answer{Now: time.Now(), Outcomes: o.outcomes, Text: o.text}.Bytes())
	}
}

// intake takes offers until ctx ends: many at a time, as the disk takes as long for many as for one.
func (h *Hub) intake(ctx context.Context) {
	for ctx.Err() == nil {
		if list := h.offers.next(); len(list) > 0 {
			h.keep(ctx, list)
			continue
		}
		select {
		case <-ctx.Done():
		case <-h.offers.wake:
		}
	}
}

// one is a statement of an offer.
type one struct {
	offer *offer
	at    int
}

func (o one) statement() wire.Statement { return o.offer.said[o.at].Statement }

// later has the statement said again: nothing can be written now.
func (o one) later(why error) {
	o.offer.outcomes[o.at] = wire.Later
	if o.offer.text == "" && why != nil {
		o.offer.text = why.Error()
	}
}

func (o one) refuse(err error) {
	o.offer.outcomes[o.at] = wire.Refused
	if o.offer.text == "" {
		o.offer.text = err.Error()
	}
}

// sort groups the statements that may be made by their prefix, in the order in which they came.
func (h *Hub) sort(list []part, now time.Time) (order []netip.Prefix, of map[netip.Prefix][]one) {
	of = map[netip.Prefix][]one{}
	for _, p := range list {
		for at := p.from; at < p.to; at++ {
			s := &p.said[at]
			if err := h.refusal(s, now); err != nil {
				one{p.offer, at}.refuse(err)
				continue
			}
			if of[s.Prefix] == nil {
				order = append(order, s.Prefix)
			}
			of[s.Prefix] = append(of[s.Prefix], one{p.offer, at})
		}
	}
	return order, of
}

// refusal tells why a statement is not taken.
func (h *Hub) refusal(s *wire.Said, now time.Time) error {
	if err := wire.CheckStatement(s.Prefix, &s.Statement, now); err != nil {
		return err
	}
	if err := h.spares(s); err != nil {
		return err
	}
	h.view.mu.Lock()
	defer h.view.mu.Unlock()
	switch {
	case s.Origin == wire.Controller || s.Lift() && h.view.table.Get(s.Prefix).BannedBy(s.Statement): // a lift takes the place of a ban
		return nil
	case h.view.table.Of(s.Origin) >= h.caps.ofNode:
		return fmt.Errorf("node %s has %d statements already", s.Origin, h.caps.ofNode)
	case h.view.table.Len() >= h.caps.prefixes:
		return fmt.Errorf("the fleet has %d banned prefixes, as many as its hubs have space for", h.caps.prefixes)
	}
	return nil
}
