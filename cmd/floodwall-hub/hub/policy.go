// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/floodwall/floodwall/internal/fleet/policies"
	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// policyStore contains the policies of the fleet, and the nodes' reports about their policies. The hub distributes policies without verifying them,
// because it has no key.
type policyStore struct {
	stream jetstream.Stream

	mu     sync.Mutex
	head   []byte // the current order
	states map[string]wire.PolicyState
	asks   map[string]*wire.Allowance
}

// The limits of a node's requests for policies, and of the states that a hub keeps.
const (
	partRate  = 20.0 // requests of a node a second for parts of files
	partBurst = 10   // seconds of partRate in one burst
	maxStates = 20_000
)

// States are the policy states of nodes that one hub has.
type States struct {
	Hub   string                      `json:"hub"`
	Nodes map[string]wire.PolicyState `json:"nodes"`
}

// followPolicies reads the current order, and sends each new order to all nodes.
func (h *Hub) followPolicies(ctx context.Context, s jetstream.Stream) error {
	c, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{wire.PolicyHead}})
	if err != nil {
		return err
	}
	return h.deliver(ctx, c, func(m jetstream.Msg, _ *jetstream.MsgMetadata) {
		order := m.Data()
		if err := policies.Whole(order); err != nil {
			h.log(fmt.Sprintf("the order that counts is passed by, as it cannot be read (%v): somebody with %s has published it", err, adminFile))
			if order = h.lastWhole(ctx, s); order == nil {
				return
			}
		}
		h.policies.mu.Lock()
		h.policies.head = order
		h.policies.mu.Unlock()
		_ = h.conn.Publish(wire.Policies, order) // nodes that miss the order request it
	})
}

// lastWhole returns the order with the greatest version that can be parsed, or nil when there is none.
func (h *Hub) lastWhole(ctx context.Context, s jetstream.Stream) []byte {
	ctx, cancel := context.WithTimeout(ctx, pushWait)
	defer cancel()
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(wire.PolicyNumber+".>"))
	if err != nil {
		return nil
	}
	var versions []uint64
	for subject := range info.State.Subjects {
		if v, err := strconv.ParseUint(strings.TrimPrefix(subject, wire.PolicyNumber+"."), 10, 64); err == nil {
			versions = append(versions, v)
		}
	}
	slices.Sort(versions)
	for _, v := range slices.Backward(versions) {
		m, err := s.GetLastMsgForSubject(ctx, wire.PolicyNumber+"."+strconv.FormatUint(v, 10))
		if err == nil && policies.Whole(m.Data) == nil {
			return m.Data
		}
	}
	return nil
}

// policyAsked answers a node that requests the order or a part of a file. An empty answer means that the order or the part does not exist.
func (h *Hub) policyAsked(m *nats.Msg) {
	node, err := h.sender(m)
	part, bad := wire.ParsePart(m.Data)
	if err != nil || bad != nil || !h.policies.may(node, time.Now()) {
		return
	}
	if part.Sum == "" {
		h.policies.mu.Lock()
		defer h.policies.mu.Unlock()
		_ = h.conn.Publish(m.Reply, h.policies.head) // after an error the node asks again
		return
	}
	h.running.Go(func() { // reading may take long: the stream may be at another hub
		ctx, cancel := context.WithTimeout(context.Background(), ackWait)
		defer cancel()
		var data []byte
		if kept, err := h.policies.stream.GetLastMsgForSubject(ctx, wire.FileSubject(part.Sum, part.Part)); err == nil {
			data = kept.Data
		}
		_ = h.conn.Publish(m.Reply, data)
	})
}

// may reports whether a node may send one more request.
func (p *policyStore) may(node string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asks == nil || len(p.asks) > maxStates {
		p.asks = map[string]*wire.Allowance{}
	}
	a := p.asks[node]
	if a == nil {
		a = &wire.Allowance{Rate: partRate, Burst: partBurst}
		p.asks[node] = a
	}
	return a.Take(now, 1)
}

// stateSaid receives the policy state of a node.
func (h *Hub) stateSaid(m *nats.Msg) {
	node, err := wire.NodeOf(m.Subject)
	s, bad := wire.ParsePolicyState(m.Data)
	if err != nil || bad != nil || !h.speaks(node) {
		return
	}
	s.Heard = time.Now()
	p := &h.policies
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.states == nil {
		p.states = map[string]wire.PolicyState{}
	}
	if _, known := p.states[node]; known || len(p.states) < maxStates {
		p.states[node] = s
	}
}

// policyStates answers with the states of nodes. All hubs answer, in messages of limited size.
func (h *Hub) policyStates(m *nats.Msg) {
	p := &h.policies
	p.mu.Lock()
	list := States{Hub: h.config.Name, Nodes: map[string]wire.PolicyState{}}
	var all []States
	for name, s := range p.states {
		if !h.speaks(name) {
			delete(p.states, name)
			continue
		}
		s.Age = time.Since(s.Heard).Seconds()
		if list.Nodes[name] = s; len(list.Nodes) == maxStatesAnswer {
			all, list.Nodes = append(all, list), map[string]wire.PolicyState{}
		}
	}
	p.mu.Unlock()
	for _, part := range all {
		respond(m, part)
	}
	respond(m, list) // the last message has fewer states than maxStatesAnswer
}

// maxStatesAnswer is the most states in a message.
const maxStatesAnswer = 500
