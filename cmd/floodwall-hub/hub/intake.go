// SPDX-License-Identifier: Apache-2.0

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

// The limits of a node's statements, and of the fleet.
const (
	nodeRate    = 2000      // statements a second of one node
	nodeBurst   = 30        // seconds of nodeRate in one burst; after a partition a node has many statements to send
	maxOfNode   = 200_000   // current statements of one node
	maxPrefixes = 1_000_000 // if the disk has space for as many
	syncRate    = 1.0       // requests of a node a second for missed records; each further syncRecords records count as one more request
	syncBurst   = 120
	syncRecords = 10_000

	messageRate  = nodeRate + 1000 // messages a second of one node: an offer has at least one statement
	messageBurst = 5               // a node waits for the answer to an offer before it sends the next one, so it cannot queue messages
)

// floodWait is how long a node that sends too many messages is disconnected.
const floodWait = time.Minute

// rates are the allowances (token buckets) of nodes.
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

func (r *rates) sent(node string, now time.Time, messages int) bool {
	return r.take(&r.messages, node, wire.Allowance{Rate: messageRate, Burst: messageBurst}, now, messages)
}

func (r *rates) sync(node string, now time.Time, records int) bool {
	return r.take(&r.syncs, node, wire.Allowance{Rate: syncRate, Burst: syncBurst}, now, 1+records/syncRecords)
}

// sweep removes all allowances when there are many: with an existing cluster, a client can choose its name.
func (r *rates) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if max(len(r.said), len(r.syncs), len(r.sights), len(r.messages)) > 100_000 {
		r.said, r.syncs, r.sights, r.messages = nil, nil, nil, nil
	}
}

// offer is a message with statements of a node or of the controller.
type offer struct {
	origin   string
	said     wire.Offer
	reply    string
	outcomes []wire.Outcome
	left     int // statements that are still in the queue
	text     string
	done     chan<- []wire.Outcome // receives the outcomes for code of the hub that waits for them; nil: no code waits
}

// bounded limits the messages of each node. With an existing cluster it drops the excess messages of a node. With the embedded server it drops none,
// because endFloods counts messages.
func (h *Hub) bounded(handle nats.MsgHandler) nats.MsgHandler {
	return func(m *nats.Msg) {
		if node, err := wire.NodeOf(m.Subject); err == nil && (h.server != nil || h.rates.sent(node, time.Now(), 1)) {
			handle(m)
		}
	}
}

// endFloods disconnects for a while each node that sends too many messages, until ctx ends. All nodes share a subscription, so a flood of one node
// displaces the messages of other nodes. endFloods uses the counts of the server: when the hub is too slow for a flood, most messages are lost before
// they reach the subscription.
func (h *Hub) endFloods(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for node, messages := range h.auth.received() {
				if !h.rates.sent(node, now, messages) && h.auth.shut(node, now.Add(floodWait)) {
					h.log(fmt.Sprintf("node %s sends more than %d messages a second: it is disconnected for %v", node, messageRate, floodWait))
				}
			}
		}
	}
}

// sender returns the node that sent a request. It returns an error when the reply subject is not that node's, because the hub may publish on subjects
// on which the node may not.
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

// speaks reports whether a node belongs to the fleet. A message of a revoked node may still be on its way.
func (h *Hub) speaks(node string) bool { return h.server == nil || h.members.joined(node) }

// offered receives an offer of a node.
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

// enqueue passes an offer to the intake. It never blocks, because the messages of all nodes are processed one by one. If the queue already has too
// many statements of the node, the node must offer these again later.
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

// answer sends the outcomes of an offer.
func (h *Hub) answer(o *offer) {
	if o.done != nil {
		o.done <- o.outcomes
	}
	if o.reply != "" {
		_ = h.conn.Publish(o.reply, wire.Answer{Now: time.Now(), Outcomes: o.outcomes, Text: o.text}.Bytes())
	}
}

// intake processes offers until ctx ends. It writes many at the same time, because the disk takes as long for many as for one.
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

// one is a single statement of an offer.
type one struct {
	offer *offer
	at    int
}

func (o one) statement() wire.Statement { return o.offer.said[o.at].Statement }

// later sets the outcome Later, because nothing can be written now.
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

// sort groups the valid statements by their prefix, in the order in which they came.
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

// refusal returns why a statement is refused, nil when it is not.
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
	case s.Origin == wire.Controller || s.Lift() && h.view.table.Get(s.Prefix).BannedBy(s.Statement): // a lift only replaces a ban, so the limits do not apply
		return nil
	case h.view.table.Of(s.Origin) >= h.caps.ofNode:
		return fmt.Errorf("node %s has %d statements already", s.Origin, h.caps.ofNode)
	case h.view.table.Len() >= h.caps.prefixes:
		return fmt.Errorf("the fleet has %d banned prefixes, as many as its hubs have space for", h.caps.prefixes)
	}
	return nil
}
