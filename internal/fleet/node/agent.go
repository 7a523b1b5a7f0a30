// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// Enforcer applies bans of other nodes on this host.
type Enforcer interface {
	// Block bans prefixes. It returns the refused prefixes, or an error when it could not ban any.
	Block(ctx context.Context, bans []Ban) (refused map[netip.Prefix]error, err error)
	// Unblock ends bans of other nodes. If all is true, it also ends bans of this host. It returns the prefixes whose bans it ended.
	Unblock(ctx context.Context, prefixes []netip.Prefix, all bool) (were []netip.Prefix, err error)
	// Never returns a function that reports whether a prefix must not be banned on this host, because it contains an address of the allowlist.
	Never(ctx context.Context) (func(netip.Prefix) bool, error)
	// Capacity is the capacity of the set of bans in entries. It is known after a call of Never; 0: no limit.
	Capacity() int
}

// ErrKept is the error when a ban was not entered because this host has its own ban of the prefix, by a person or with a later end. The agent neither
// changes nor ends the host's ban. It checks later whether that ban has ended.
var ErrKept = errors.New("this host has a ban of its own")

// Ban is a ban of another node, or a ban of this node that is entered again.
type Ban struct {
	Prefix netip.Prefix
	Until  time.Time // by this host's clock
	Origin string    // name of the node that made the ban; "" for this node
	Why    string
}

// Agent is a host's part of a fleet.
type Agent struct {
	file     *File
	enforcer Enforcer
	log      func(text string, err error)
	options  []nats.Option
	verify   nkeys.KeyPair // the controller's public key; nil: the agent ignores statements of the controller
	wake     chan struct{}

	mu       sync.Mutex
	clock    clock
	drift    time.Duration // change of the fleet's time since it was last compared with the ends of entered bans
	table    wire.Table
	stream   stream
	prefixes prefixTable
	last     uint64 // number of the last statement of this node
	never    func(netip.Prefix) bool
	hubs     hubAddresses
	share    share
	space    wire.Allowance // for records from hubs
	counts   Counts
	flight   *flight // the offer that has no answer yet
	conn     *nats.Conn
	number   uint64 // of the last request
	texts    texts
	paused   time.Time // no call of the enforcer before this time
	told     string    // the last error of the enforcer
	peers    peers
	full     string    // the hub's reason for accepting nothing now
	refused  time.Time // since when the hubs refuse this node's key; zero: they accept it
	sees     view
	ledger   ledger
	beat     time.Time          // time of the last message of a hub
	orders   func(order []byte) // is called with orders of policies; may be nil
	policy   *wire.PolicyState  // this node's last reported state
}

// Counts contains numbers of bans since the agent started.
type Counts struct {
	Sent     uint64 `json:"sent"`     // bans of this node that the hub has accepted
	Received uint64 `json:"received"` // bans of other nodes that were entered
	Refused  uint64 `json:"refused"`  // bans of other nodes that were not entered: in the allowlist, set full, share of the set used up, wrong prefix length, or not signed
	Rejected uint64 `json:"rejected"` // bans of this node that the hub has refused
}

// New makes an agent. log is called with events. options are for connections within the process. Without options the agent connects with TLS to the
// hubs that the file names.
func New(f *File, e Enforcer, log func(string, error), options ...nats.Option) (*Agent, error) {
	a := &Agent{
		file: f, enforcer: e, log: log, options: options, wake: make(chan struct{}, 1),
		prefixes: newPrefixTable(), share: newShare(), space: wire.Allowance{Rate: 50_000, Burst: 10},
	}
	a.stream.ahead = map[uint64]struct{}{}
	if err := a.remember(); err != nil {
		return nil, err
	}
	if f.Controller != "" {
		key, err := nkeys.FromPublicKey(f.Controller)
		if err != nil {
			return nil, fmt.Errorf("controller key: %w", err)
		}
		a.verify = key
	}
	return a, nil
}

// How often the agent checks for due actions, and how often it reads the allowlist.
const (
	look      = time.Second
	lookNever = 30 * time.Second
)

// Run takes part in the fleet until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.connect(); err != nil {
		return err
	}
	defer a.conn.Close()
	var due time.Time // when to read the allowlist again
	tick := time.NewTimer(periodic.Left(look))
	defer tick.Stop()
	for {
		if now := time.Now(); now.After(due) {
			due = now.Add(a.lookNever(ctx))
		}
		a.enforce(ctx)
		a.offer()
		a.askPeers()
		a.keep()
		a.sync()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			tick.Reset(periodic.Left(look))
			a.sweep()
		case <-a.wake:
		}
	}
}

// poke makes Run check for due actions.
func (a *Agent) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Waits between attempts to reach a hub. Each wait is random, below a limit that doubles. So the nodes of a fleet do not all connect at the same time
// when a hub has started again.
const (
	firstWait   = 200 * time.Millisecond
	longestWait = 10 * time.Second
)

func reconnectWait(attempts int) time.Duration {
	bound := min(firstWait<<min(max(attempts-1, 0), 10), longestWait)
	return 50*time.Millisecond + rand.N(bound)
}

// connect starts to connect. It does not wait for a hub, because a node also works without one.
func (a *Agent) connect() error {
	o, err := a.natsOptions()
	if err != nil {
		return err
	}
	// The handlers below take the lock, so they run after conn is set.
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn, err = nats.Connect(strings.Join(a.file.Hubs, ","), o...); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	for subject, handle := range map[string]nats.MsgHandler{wire.Live: a.live, wire.Beat: a.pulse, wire.Views: a.viewed, wire.Policies: a.ordered, wire.Inbox(a.file.Name) + ".>": a.answered} {
		s, err := a.conn.Subscribe(subject, handle)
		if err == nil {
			err = s.SetPendingLimits(100_000, 64<<20)
		}
		if err != nil {
			return fmt.Errorf("fleet: %w", err)
		}
	}
	return nil
}

// natsOptions returns the options of the permanent connection.
func (a *Agent) natsOptions() ([]nats.Option, error) {
	o, err := a.access()
	return append(o,
		nats.Name(a.file.Name), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.CustomReconnectDelay(reconnectWait),
		nats.IgnoreAuthErrorAbort(), nats.ReconnectBufSize(-1), nats.PingInterval(10*time.Second), nats.MaxPingsOutstanding(2),
		nats.ConnectHandler(a.connected), nats.ReconnectHandler(a.connected), nats.DisconnectErrHandler(a.disconnected), nats.ErrorHandler(a.wrong),
	), err
}

// access returns the options by which this node authenticates itself and the hub.
func (a *Agent) access() ([]nats.Option, error) {
	o := []nats.Option{nats.CustomInboxPrefix(wire.Inbox(a.file.Name) + ".ask")}
	if a.file.Creds != "" {
		o = append(o, nats.UserCredentials(a.file.Creds))
	} else {
		key, err := nkeys.FromSeed([]byte(a.file.Seed))
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		public, err := key.PublicKey()
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		o = append(o, nats.Nkey(public, key.Sign))
	}
	if a.file.CA != "" && len(a.options) == 0 {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(a.file.CA))
		o = append(o, nats.Secure(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}))
	}
	return append(o, a.options...), nil
}

func (a *Agent) connected(c *nats.Conn) {
	a.log(fmt.Sprintf("fleet: node %s is connected to hub %s", a.file.Name, c.ConnectedServerName()), nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stream.lost() // messages that hubs sent while there was no connection are missing
	a.flight, a.refused = nil, time.Time{}
	a.peers.asked = time.Time{}
	a.poke()
}

func (a *Agent) disconnected(_ *nats.Conn, err error) {
	if err == nil {
		return // the agent ends
	}
	a.poke()
	a.warn(fmt.Errorf("the hub is lost: %w; this host goes on by itself", err))
}

// wrong processes asynchronous errors of the connection.
func (a *Agent) wrong(_ *nats.Conn, _ *nats.Subscription, err error) {
	if errors.Is(err, nats.ErrSlowConsumer) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.stream.lost()
		return
	}
	if errors.Is(err, nats.ErrAuthorization) {
		a.mu.Lock()
		if a.refused.IsZero() {
			a.refused = time.Now().UTC()
		}
		err = errors.New(awayText(a.refused))
		a.mu.Unlock()
	}
	a.warn(err)
}

// sweep removes records and bans that have ended.
func (a *Agent) sweep() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stream.swept++
	a.sweepOwn()
	if a.stream.swept%60 == 0 {
		now := a.clock.now()
		a.table.Sweep(now)
		for p, s := range a.prefixes.states {
			if s.entered && !s.until.IsZero() && time.Now().After(s.until) {
				a.forget(p)
			}
		}
	}
	if a.stream.swept%30 == 0 {
		for p := range a.share.crowded { // bans that used the space may have ended
			a.prefixes.dirty.add(p)
		}
		for p := range a.prefixes.kept {
			a.prefixes.setKept(p, false)
			a.prefixes.dirty.add(p)
		}
		a.offerAgain()
	}
}

// lookNever reads the allowlist. It returns the time until the next read.
func (a *Agent) lookNever(ctx context.Context) time.Duration {
	never, err := a.enforcer.Never(ctx)
	if err != nil {
		a.warn(err)
		return errorWait
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hubs.look(ctx, a.file.Hubs)
	a.never = func(p netip.Prefix) bool { return a.hubs.in(p) || a.peers.in(p) || never(p) }
	a.share.capacity = a.enforcer.Capacity()
	a.allowlistChanged()
	return lookNever
}

// allowlistChanged marks the bans whose prefixes have entered or left the allowlist, so that they are checked again.
func (a *Agent) allowlistChanged() {
	if a.never == nil {
		return
	}
	for p, s := range a.prefixes.states {
		switch never := (s.entered || s.allowlisted) && a.never(p); {
		case s.entered && never:
			a.prefixes.dirty.add(p)
		case s.allowlisted && !never:
			a.prefixes.setAllowlisted(p, false)
			a.prefixes.dirty.add(p)
		}
	}
}

// warn reports an error of the enforcer, unless the last reported error was the same.
func (a *Agent) warn(err error) {
	a.mu.Lock()
	text := err.Error()
	same := text == a.told
	a.told = text
	a.mu.Unlock()
	if !same {
		a.log("", fmt.Errorf("fleet: %w", err))
	}
}
