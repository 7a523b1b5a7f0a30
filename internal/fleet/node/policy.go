// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// askWait is how long a hub may take to answer.
const askWait = 5 * time.Second

// ErrAway is the error when no hub can be reached now.
var ErrAway = errors.New("no hub can be reached")

// Trust sets the key whose policies the node of a state directory accepts; "": none. The daemon reads the change within a second.
func Trust(state, key string) error {
	f, err := Read(state)
	if err != nil {
		return err
	}
	f.Policies = key
	if err := f.check(); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	return f.write(Path(state))
}

// checkPolicyKey returns an error for a key that cannot sign policies.
func checkPolicyKey(key string) error {
	if key != "" && !nkeys.IsValidPublicAccountKey(key) {
		return wording.Hinted(fmt.Sprintf("%q is no public key for policies", key), "it begins with A: `floodwall-hub fleet key FILE` prints it")
	}
	return nil
}

// ask sends a request to a hub over a connection.
func (a *Agent) ask(ctx context.Context, conn *nats.Conn, p wire.Part) ([]byte, error) {
	if conn == nil || !conn.IsConnected() {
		return nil, ErrAway
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	m, err := conn.RequestWithContext(ctx, wire.PolicyAskSubject(a.file.Name), p.Bytes())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	}
	return m.Data, nil
}

func (a *Agent) connection() *nats.Conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.conn
}

// Order returns the current order of a hub. It is empty when there is none. The order is not verified.
func (a *Agent) Order(ctx context.Context) ([]byte, error) {
	return a.ask(ctx, a.connection(), wire.Part{})
}

// Part returns a part of a file of a hub. The part is not verified.
func (a *Agent) Part(ctx context.Context, sum string, part int) ([]byte, error) {
	return a.ask(ctx, a.connection(), wire.Part{Sum: sum, Part: part})
}

// Orders sets the function that is called with each order that hubs publish, until the agent ends.
func (a *Agent) Orders(take func(order []byte)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.orders = take
}

func (a *Agent) ordered(m *nats.Msg) {
	a.mu.Lock()
	take := a.orders
	a.mu.Unlock()
	if take != nil {
		take(m.Data)
	}
}

// Tell sends this node's policy state to the hubs. If no hub is connected, the state is lost, and the caller must send it again later.
func (a *Agent) Tell(s wire.PolicyState) {
	a.mu.Lock()
	a.policy = &s
	a.mu.Unlock()
	if conn := a.connection(); conn != nil && conn.IsConnected() {
		_ = conn.Publish(wire.StateSubject(a.file.Name), s.Bytes())
	}
}

// Reach returns an error unless this node can reach a hub now, both by a new connection and by the existing one. It needs both, because a policy may
// drop only new connections.
func (a *Agent) Reach(ctx context.Context) error {
	began := time.Now()
	o, err := a.access()
	if err != nil {
		return err
	}
	conn, err := nats.Connect(strings.Join(a.file.Hubs, ","), append(o, nats.Name(a.file.Name+" looks"), nats.NoReconnect(), nats.Timeout(askWait))...)
	if err != nil {
		return fmt.Errorf("%w by a new connection: %w", ErrAway, err)
	}
	defer conn.Close()
	if _, err := a.ask(ctx, conn, wire.Part{}); err != nil {
		return fmt.Errorf("a new connection: %w", err)
	}
	for end := time.Now().Add(3 * wire.BeatEvery); ; {
		a.mu.Lock()
		heard := a.beat
		a.mu.Unlock()
		switch {
		case heard.After(began):
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%w by the connection that there was", ErrAway)
		}
		if !periodic.Sleep(ctx, wire.BeatEvery/20) {
			return ctx.Err()
		}
	}
}
