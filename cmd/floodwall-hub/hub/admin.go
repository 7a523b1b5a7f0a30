// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// Subjects of the commands' requests.
const (
	adminSay    = wire.Admin + ".say"
	adminInvite = wire.Admin + ".invite"
	adminRevoke = wire.Admin + ".revoke"
	adminNodes  = wire.Admin + ".nodes"
	adminView   = wire.Admin + ".view"

	adminPolicies = wire.Admin + ".policies"
)

// order is a request of a command.
type order struct {
	Name    string    `json:"name"`
	Secret  string    `json:"secret,omitempty"` // SHA-256 of the secret
	Expires time.Time `json:"expires,omitzero"`
}

// Result is the answer to a request of a command.
type Result struct {
	Error  string `json:"error,omitempty"`
	Hint   string `json:"hint,omitempty"`
	Lifted int    `json:"lifted,omitempty"` // bans of a revoked node
}

// Nodes is the state of one hub and its nodes.
type Nodes struct {
	Hub       string   `json:"hub"`
	Members   []Member `json:"members"`
	Connected []string `json:"connected"`         // nodes that are connected to this hub
	Prefixes  int      `json:"prefixes"`          // prefixes with a record
	Most      int      `json:"most"`              // prefixes that fit on the disk
	Free      int64    `json:"free"`              // free bytes of the disk
	Problem   string   `json:"problem,omitempty"` // why the hub accepts nothing now
}

// JoinRequest is the request of a node that has an invitation.
type JoinRequest struct {
	Key    string `json:"key"`    // public
	Secret string `json:"secret"` // secret of the invitation; the connection may be older than the invitation that is valid now
}

// JoinAnswer is the answer to a JoinRequest.
type JoinAnswer struct {
	Error      string   `json:"error,omitempty"`
	Hubs       []string `json:"hubs,omitempty"`
	CA         string   `json:"ca,omitempty"` // in PEM
	Controller string   `json:"controller,omitempty"`
}

// errConflict is the error when two hubs changed a member at the same time.
var errConflict = errors.New("another hub changed this node at the same time: try again")

// update writes a member to the stream, and to the hub's own table.
func (h *Hub) update(m Member, seq uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), changeTime)
	defer cancel()
	return h.updateWithin(ctx, m, seq)
}

func (h *Hub) updateWithin(ctx context.Context, m Member, seq uint64) error {
	text, err := json.Marshal(m)
	if err == nil {
		err = h.store.writable()
	}
	if err != nil {
		return err
	}
	ack, err := h.js.Publish(ctx, wire.Members+"."+m.Name, text, jetstream.WithExpectLastSequencePerSubject(seq))
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return errConflict
	}
	if err != nil {
		return fmt.Errorf("the hubs cannot write: %w", err)
	}
	if h.members.set(m, ack.Sequence) {
		h.auth.disconnect(m.Name)
		h.sights.Forget(m.Name)
	}
	return nil
}

// changeTime is how long a change of a member may take. conflictWait is how long a change waits until the stream delivers another hub's change.
const (
	changeTime   = 5 * time.Second
	conflictWait = 50 * time.Millisecond
)

// change replaces a member by the result of decide; nil means no change. If another hub has changed the member meanwhile, it calls decide again with
// the new state. For example, another hub may have recorded the address of the node.
func (h *Hub) change(name string, decide func(was Member) (*Member, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), changeTime)
	defer cancel()
	for {
		was, seq := h.members.get(name)
		m, err := decide(was)
		if m == nil || err != nil {
			return err
		}
		if err = h.updateWithin(ctx, *m, seq); !errors.Is(err, errConflict) || ctx.Err() != nil {
			return err
		}
		time.Sleep(conflictWait)
	}
}

func respond(m *nats.Msg, v any) {
	if text, err := json.Marshal(v); err == nil && m.Reply != "" {
		_ = m.Respond(text)
	}
}

func resultOf(err error, hint string) Result {
	if err == nil {
		return Result{}
	}
	return Result{Error: err.Error(), Hint: hint}
}

// parseOrder parses a request of a command.
func parseOrder(b []byte) (o order, err error) {
	if err = json.Unmarshal(b, &o); err == nil {
		err = wire.CheckName(o.Name)
	}
	return o, err
}

// invite records an invitation.
func (h *Hub) invite(m *nats.Msg) {
	o, err := parseOrder(m.Data)
	if err != nil {
		respond(m, resultOf(err, ""))
		return
	}
	hint := ""
	err = h.change(o.Name, func(was Member) (*Member, error) {
		if was.State == Joined {
			hint = "revoke it first, or choose another name"
			return nil, fmt.Errorf("node %s has joined already", o.Name)
		}
		return &Member{Name: o.Name, State: Invited, Since: time.Now().UTC(), Secret: o.Secret, Expires: o.Expires}, nil
	})
	if err == nil {
		h.log("invited " + o.Name)
	}
	respond(m, resultOf(err, hint))
}

// join accepts the key of a node with an invitation. The invitation is then used up. However, the same node may send the request again.
func (h *Hub) join(m *nats.Msg) {
	name, ok := strings.CutPrefix(m.Subject, wire.Join+".")
	if !ok || wire.CheckName(name) != nil || !strings.HasPrefix(m.Reply, wire.Inbox("join_"+name)+".") {
		return
	}
	var r JoinRequest
	if json.Unmarshal(m.Data, &r) != nil || !nkeys.IsValidPublicUserKey(r.Key) {
		respond(m, JoinAnswer{Error: "the key is none"})
		return
	}
	joins := false
	err := h.change(name, func(was Member) (*Member, error) {
		switch {
		case was.State == Joined && was.Key == r.Key:
			return nil, nil
		case was.State == Joined:
			return nil, errors.New("the invitation has been used")
		case !h.members.invited(name, r.Secret, time.Now()):
			return nil, errors.New("the invitation has ended, or another has taken its place")
		}
		if other, ok := h.members.holder(r.Key); ok && other != name {
			return nil, errors.New("another node has this key")
		}
		joins = true
		was.State, was.Key, was.Since = Joined, r.Key, time.Now().UTC()
		return &was, nil
	})
	if err != nil {
		respond(m, JoinAnswer{Error: err.Error()})
		return
	}
	if joins {
		h.log("joined: " + name)
	}
	_, ca, err := h.config.authority()
	a := JoinAnswer{Hubs: h.config.Servers(), CA: string(ca), Controller: h.config.Controller}
	if err != nil {
		a.Error = err.Error()
	}
	respond(m, a)
}

// revoke removes a node from the fleet, and lifts its bans. If the node is already revoked, revoke lifts the remaining bans, because another hub may
// have stored a ban at the same time. revoke answers when the lifts are stored.
func (h *Hub) revoke(m *nats.Msg) {
	o, err := parseOrder(m.Data)
	if err != nil {
		respond(m, resultOf(err, ""))
		return
	}
	hint, revokes := "", false
	err = h.change(o.Name, func(was Member) (*Member, error) {
		if was.Name == "" {
			hint = "`floodwall-hub nodes` lists the nodes"
			return nil, fmt.Errorf("the fleet has no node %s", o.Name)
		}
		if was.State == Revoked {
			return nil, nil
		}
		revokes = true
		was.State, was.Secret, was.Since = Revoked, "", time.Now().UTC()
		return &was, nil
	})
	if err != nil {
		respond(m, resultOf(err, hint))
		return
	}
	if revokes {
		h.log("revoked " + o.Name)
	}
	lifted, err := h.liftAll(o.Name)
	r := resultOf(err, "run the same command again")
	r.Lifted = lifted
	respond(m, r)
}

// liftAll lifts all bans of a node. It returns how many lifts are stored.
func (h *Hub) liftAll(name string) (lifted int, err error) {
	h.drain(name)
	lifts := h.liftsOf(name)
	for part := lifts; len(part) > 0; part = part[min(len(part), wire.MaxItems):] {
		for i, o := range h.request(offer{origin: name, said: part[:min(len(part), wire.MaxItems)]}) {
			if o == wire.Taken {
				lifted++
			} else if err == nil {
				err = fmt.Errorf("%s is revoked, but its ban of %v is not lifted: the hubs cannot write now", name, part[i].Prefix)
			}
		}
	}
	return lifted, err
}

// request passes an offer to the intake. It returns the outcomes, or none when the hub ends.
func (h *Hub) request(o offer) []wire.Outcome {
	done := make(chan []wire.Outcome, 1)
	o.done = done
	h.enqueue(o)
	select {
	case outcomes := <-done:
		return outcomes
	case <-h.ended:
		return fill(len(o.said), wire.Later)
	}
}

// drain waits until earlier offers of a node are stored.
func (h *Hub) drain(name string) { h.request(offer{origin: name}) }

// liftsOf returns an offer that lifts all bans of a node.
func (h *Hub) liftsOf(name string) (list wire.Offer) {
	h.view.mu.Lock()
	defer h.view.mu.Unlock()
	for r := range h.view.table.All() {
		last := uint64(0)
		for i := range r.Statements {
			if s := &r.Statements[i]; s.Origin == name && !s.Lift() {
				last = max(last, s.Seq)
			}
		}
		if last > 0 {
			list = append(list, wire.Said{Prefix: r.Prefix, Statement: wire.Statement{Origin: name, Seq: wire.NextSequence(time.Now(), last)}})
		}
	}
	return list
}

// maxNodesAnswer is the most nodes in a message.
const maxNodesAnswer = 500

// state returns the state of this hub.
func (h *Hub) state() Nodes {
	h.view.mu.Lock()
	defer h.view.mu.Unlock()
	n := Nodes{Hub: h.config.Name, Prefixes: h.view.table.Len(), Most: h.caps.prefixes}
	if h.server != nil {
		n.Free, _ = freeBytes(h.config.store()) // 0 when the free space is unknown
	}
	if err := h.store.writable(); err != nil {
		n.Problem = err.Error()
	} else if h.store.suspect() {
		n.Problem = "no write arrives at the store"
	}
	return n
}

// nodes lists the nodes. All hubs answer, in messages of limited size.
func (h *Hub) nodes(m *nats.Msg) {
	head := h.state()
	n := head
	for _, member := range h.members.list() {
		member.Secret = ""
		if h.auth.connected(member.Name) {
			n.Connected = append(n.Connected, member.Name)
		}
		if n.Members = append(n.Members, member); len(n.Members) == maxNodesAnswer {
			respond(m, n)
			n = head
		}
	}
	respond(m, n) // the last message has fewer nodes than maxNodesAnswer
}

// say accepts a statement of the controller. Only its signature matters, not the sender of the message.
func (h *Hub) say(m *nats.Msg) {
	said, err := wire.ParseOffer(m.Data, wire.Controller)
	if err != nil {
		return
	}
	key, err := nkeys.FromPublicKey(h.config.Controller)
	for i := range said {
		if err == nil {
			err = key.Verify(wire.Signed(said[i].Prefix, &said[i].Statement), said[i].Sig)
		}
	}
	o := offer{origin: wire.Controller, said: said, reply: m.Reply}
	if err != nil {
		o.outcomes, o.text = fill(len(said), wire.Refused), "it is not signed by the controller key of this fleet"
		h.answer(&o)
		return
	}
	h.enqueue(o)
}

// Enrol adds a node to the fleet by its public key, without an invitation. It is for nodes within this process.
func (h *Hub) Enrol(name, key string) error {
	if err := wire.CheckName(name); err != nil {
		return err
	}
	if other, ok := h.members.holder(key); ok && other != name {
		return fmt.Errorf("node %s has this key", other)
	}
	_, seq := h.members.get(name)
	return h.update(Member{Name: name, State: Joined, Key: key, Since: time.Now().UTC()}, seq)
}
