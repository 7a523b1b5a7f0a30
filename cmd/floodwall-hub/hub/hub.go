// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// Names of the streams.
const (
	banStream    = "FW_BANS"
	memberStream = "FW_MEMBERS"
	policyStream = "FW_POLICY"
)

// maxPolicies is the size limit of the stream of policies, in bytes. At least two of the largest policies fit. The oldest are removed first.
const maxPolicies = 128 << 20

// ackWait is how long the stream may take to store a record. After that, or when its leader has failed, the record is written again.
const ackWait = 2 * time.Second

// maxPending is the largest number of records that are sent to the stream without an acknowledgement: the number of two offers, which is the most
// that intake collects. Further records would have to wait for acknowledgements.
const maxPending = 2 * wire.MaxItems

// queue is the queue group of all hubs: each request goes to one of them.
const queue = "hubs"

// Hub is a running hub.
type Hub struct {
	config   *Config
	log      func(string)
	members  *members
	auth     *authenticator
	server   *server.Server // nil when the hub uses an existing cluster
	conn     *nats.Conn
	js       jetstream.JetStream
	bans     jetstream.Stream
	view     view
	caps     space
	store    store
	offers   *queues
	rates    rates
	sights   summaries
	policies policyStore
	running  sync.WaitGroup
	ended    <-chan struct{}
	stop     context.CancelFunc
}

// Run runs a hub until ctx ends. It restarts the hub when its store has failed, for example because the disk was full. log is called with each event,
// as one line.
func Run(ctx context.Context, c *Config, log func(string)) error {
	h, err := Start(ctx, c, log)
	if err != nil {
		return err
	}
	log(fmt.Sprintf("hub %s serves nodes", c.Name))
	for h != nil {
		select {
		case <-ctx.Done():
			h.Close()
			return nil
		case <-h.store.broken:
			h.Close()
			h = restart(ctx, c, log)
		}
	}
	return nil
}

// Start starts a hub. It returns when the hub serves nodes. A cluster serves none until enough of its hubs run.
func Start(ctx context.Context, c *Config, log func(string)) (*Hub, error) {
	if c.NATS == "" {
		if err := c.checkDisk(log); err != nil {
			return nil, err
		}
	}
	return start(ctx, c, log)
}

func start(ctx context.Context, c *Config, log func(string)) (h *Hub, err error) {
	admin, public, err := c.admin()
	if err != nil {
		return nil, err
	}
	h = &Hub{config: c, log: log, members: newMembers(), offers: newQueues(), caps: c.space()}
	h.store.broken = make(chan struct{})
	h.auth = &authenticator{admin: public, members: h.members, open: map[string][]uint64{}, closed: map[string]time.Time{}}
	h.auth.seen = h.seenAt
	ctx, h.stop = context.WithCancel(ctx)
	h.ended = ctx.Done()
	defer func(started *Hub) {
		if err != nil {
			started.Close()
		}
	}(h)
	if c.NATS == "" {
		s, err := startServer(c, h.auth)
		if err != nil {
			return nil, err
		}
		h.auth.mu.Lock()
		h.server, h.auth.server = s, s
		h.auth.mu.Unlock()
	}
	if h.conn, err = h.connect(admin); err != nil {
		return nil, err
	}
	if err := h.open(ctx); err != nil {
		return nil, err
	}
	return h, h.serve(ctx)
}

// Server is the embedded server, for connections within the process.
func (h *Hub) Server() nats.InProcessConnProvider { return h.server }

// Close ends the hub.
func (h *Hub) Close() {
	h.stop()
	if h.conn != nil {
		h.conn.Close()
	}
	h.running.Wait()
	if h.server != nil {
		h.server.Shutdown()
		h.server.WaitForShutdown()
	}
}

// connect connects the hub to its own server.
func (h *Hub) connect(admin nkeys.KeyPair) (*nats.Conn, error) {
	o := []nats.Option{nats.Name("floodwall hub " + h.config.Name), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(h.server == nil), nats.CustomInboxPrefix(wire.HubInbox)}
	if h.server == nil {
		user, err := h.config.user()
		if err != nil {
			return nil, err
		}
		o = append(o, user)
		return nats.Connect(h.config.NATS, o...)
	}
	return nats.Connect("", append(o, nats.InProcessServer(h.server), keyOption(admin))...)
}

// keyOption signs the server's nonce with a key.
func keyOption(key nkeys.KeyPair) nats.Option {
	public, _ := key.PublicKey() // cannot fail for a key that was read
	return nats.Nkey(public, key.Sign)
}

// streamWait is the time between two checks whether the cluster has elected a leader.
const streamWait = 500 * time.Millisecond

// streamTry limits one attempt to make a stream: a request before there is a leader gets no answer.
const streamTry = 2 * time.Second

// open makes the streams, or finds them. It waits until the cluster has a leader.
func (h *Hub) open(ctx context.Context) (err error) {
	if h.js, err = jetstream.New(h.conn, jetstream.WithPublishAsyncMaxPending(maxPending), jetstream.WithPublishAsyncTimeout(ackWait)); err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	for _, s := range h.streams() {
		if err := h.openStream(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (h *Hub) streams() []jetstream.StreamConfig {
	base := jetstream.StreamConfig{Storage: jetstream.FileStorage, Replicas: max(len(h.config.Hubs), 1), MaxMsgsPerSubject: 1, Discard: jetstream.DiscardOld, AllowDirect: true}
	members, bans, policies := base, base, base
	policies.Name, policies.Subjects, policies.MaxBytes = policyStream, []string{wire.Policy + ".>"}, h.caps.policies
	members.Name, members.Subjects = memberStream, []string{wire.Members + ".>"}
	bans.Name, bans.Subjects = banStream, []string{wire.Bans + ".>"}
	bans.MaxAge, bans.MaxBytes, bans.AllowMsgTTL = wire.Longest+time.Hour, h.caps.bans, true
	return []jetstream.StreamConfig{members, bans, policies}
}

// openStream makes a stream, or finds it, and starts to read it. Either can fail until a cluster has a leader and all of its hubs know the stream, so
// it tries again.
func (h *Hub) openStream(ctx context.Context, s jetstream.StreamConfig) error {
	for told := false; ; {
		err := h.tryStream(ctx, s)
		var refused *jetstream.APIError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case len(h.config.Hubs) < 2 && errors.As(err, &refused):
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
		if !told {
			told = true
			h.log(fmt.Sprintf("waiting for the other hubs: %v", err))
		}
		periodic.Sleep(ctx, streamWait)
	}
}

func (h *Hub) tryStream(ctx context.Context, s jetstream.StreamConfig) error {
	try, cancel := context.WithTimeout(ctx, streamTry)
	stream, err := h.js.CreateOrUpdateStream(try, s)
	cancel()
	if err != nil {
		return err
	}
	switch s.Name {
	case banStream:
		h.bans = stream
		return h.follow(ctx, stream)
	case memberStream:
		return h.followMembers(ctx, stream)
	}
	h.policies.stream = stream
	return h.followPolicies(ctx, stream)
}

// serve subscribes to the requests of nodes and commands.
func (h *Hub) serve(ctx context.Context) error {
	h.running.Go(func() { h.intake(ctx) })
	h.running.Go(func() { h.beat(ctx) })
	h.running.Go(func() { h.show(ctx) })
	if h.server != nil {
		h.running.Go(func() { h.endFloods(ctx) })
		h.running.Go(func() { h.watchDisk(ctx) })
	}
	var errs []error
	for subject, handle := range map[string]nats.MsgHandler{
		wire.Nodes + ".*.ban":    h.bounded(h.offered),
		wire.Nodes + ".*.sync":   h.bounded(h.asked),
		wire.Join + ".*":         h.join,
		adminSay:                 h.say,
		adminInvite:              h.invite,
		adminRevoke:              h.revoke,
		adminView:                h.seen,
		wire.Nodes + ".*.policy": h.bounded(h.policyAsked),
		wire.Nodes + ".*.peers":  h.bounded(h.peersAsked),
	} {
		_, err := h.conn.QueueSubscribe(subject, queue, handle)
		errs = append(errs, err)
	}
	for subject, handle := range map[string]nats.MsgHandler{ // every hub gets these requests
		adminNodes:                h.nodes,
		adminPolicies:             h.policyStates,
		wire.Nodes + ".*.state":   h.bounded(h.stateSaid),
		wire.Nodes + ".*.summary": h.bounded(h.summarized),
		wire.Views:                h.shown,
	} {
		_, err := h.conn.Subscribe(subject, handle)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, h.conn.Flush())...)
}
