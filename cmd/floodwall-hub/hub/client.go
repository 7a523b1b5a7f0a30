// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// How long commands wait for hubs.
const (
	answerWait = 10 * time.Second
	revokeWait = 2 * time.Minute // all bans of a node are lifted within this time
	allWait    = time.Second     // wait for the answers of all other hubs after the first answer
)

// Client is a command's connection to the hubs.
type Client struct {
	config *Config
	conn   *nats.Conn
	ahead  time.Duration // how far this host's clock is ahead; set in tests
}

// Dial connects to a hub of the fleet to which the state directory belongs. options are for connections within the process; without them it uses TLS.
func Dial(c *Config, options ...nats.Option) (*Client, error) {
	if c.NATS != "" {
		user, err := c.user()
		if err != nil {
			return nil, err
		}
		conn, err := nats.Connect(c.NATS, nats.Name("floodwall"), nats.CustomInboxPrefix(wire.HubInbox), user)
		return &Client{config: c, conn: conn}, unreachable(err)
	}
	admin, _, err := c.admin()
	if err != nil {
		return nil, err
	}
	pool, _, err := c.authority()
	if err != nil {
		return nil, err
	}
	servers := strings.Join(c.Servers(), ",")
	if len(options) > 0 {
		servers = ""
	} else {
		options = []nats.Option{nats.Secure(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13})}
	}
	conn, err := nats.Connect(servers, append(options, nats.Name("floodwall"), nats.CustomInboxPrefix(wire.HubInbox), keyOption(admin))...)
	return &Client{config: c, conn: conn}, unreachable(err)
}

func unreachable(err error) error {
	if err == nil {
		return nil
	}
	return wording.Hinted(fmt.Sprintf("no hub can be reached: %v", err), "see whether `floodwall-hub run` runs")
}

// Hubs returns the names of the hubs of the fleet.
func (c *Client) Hubs() (list []string) {
	for _, h := range c.config.Hubs {
		list = append(list, h.Name)
	}
	return list
}

// Close ends the connection.
func (c *Client) Close() { c.conn.Close() }

// AnswerError is a hub's refusal.
type AnswerError struct{ Result }

func (e *AnswerError) Error() string { return e.Result.Error }

// Hint is the remedy.
func (e *AnswerError) Hint() string { return e.Result.Hint }

func (c *Client) ask(ctx context.Context, subject string, o order, wait time.Duration) (r Result, err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m, err := c.conn.RequestWithContext(ctx, subject, text)
	if err != nil {
		return r, unreachable(err)
	}
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return r, fmt.Errorf("answer of a hub: %w", err)
	}
	if r.Error != "" {
		return r, &AnswerError{r}
	}
	return r, nil
}

// Invite makes an invitation for a node, which is valid for a time and can be used once.
func (c *Client) Invite(ctx context.Context, name string, holds time.Duration) (wire.Invitation, error) {
	i := wire.Invitation{Name: name, Secret: wire.NewSecret(), Hubs: c.config.Servers()}
	if c.config.NATS != "" {
		return i, wording.Hinted("this fleet uses a NATS cluster of its own, which makes its own users",
			fmt.Sprintf("on the node: floodwall join --name %s --nats %s --controller %s", name, c.config.NATS, c.config.Controller))
	}
	_, text, err := c.config.authority()
	if err != nil {
		return i, err
	}
	block, _ := pem.Decode(text)
	sum := sha256.Sum256(block.Bytes)
	i.CA = sum[:]
	_, err = c.ask(ctx, adminInvite, order{name, hashed(i.Secret), time.Now().Add(holds).UTC()}, answerWait)
	return i, err
}

// Revoke removes a node from the fleet. It returns how many of the node's bans are lifted.
func (c *Client) Revoke(ctx context.Context, name string) (lifted int, err error) {
	if c.config.NATS != "" {
		return 0, wording.Hinted("this fleet uses a NATS cluster of its own, which admits its users",
			fmt.Sprintf("remove the user of %s from the configuration of the cluster; `floodwall-hub unban` lifts its bans", name))
	}
	r, err := c.ask(ctx, adminRevoke, order{Name: name}, revokeWait)
	return r.Lifted, err
}

// Nodes requests the lists of nodes from all hubs.
func (c *Client) Nodes(ctx context.Context) (list []Nodes, err error) {
	inbox := c.conn.NewInbox()
	sub, err := c.conn.SubscribeSync(inbox)
	if err == nil {
		err = c.conn.PublishRequest(adminNodes, inbox, nil)
	}
	if err != nil {
		return nil, unreachable(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	at, whole := map[string]int{}, 0
	for wait := answerWait; whole < max(len(c.config.Hubs), 1); wait = allWait {
		ctx, cancel := context.WithTimeout(ctx, wait)
		m, err := sub.NextMsgWithContext(ctx)
		cancel()
		if err != nil {
			break
		}
		var n Nodes
		if json.Unmarshal(m.Data, &n) != nil || n.Hub == "" {
			continue
		}
		if len(n.Members) < maxNodesAnswer {
			whole++
		}
		if i, known := at[n.Hub]; known {
			list[i].Members, list[i].Connected = append(list[i].Members, n.Members...), append(list[i].Connected, n.Connected...)
			continue
		}
		at[n.Hub], list = len(list), append(list, n)
	}
	if len(list) == 0 {
		return nil, unreachable(errors.New("no answer"))
	}
	return list, nil
}

// View requests the fleet's view from a hub.
func (c *Client) View(ctx context.Context) (*wire.View, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	m, err := c.conn.RequestWithContext(ctx, adminView, nil)
	if err != nil {
		return nil, unreachable(err)
	}
	return wire.ParseView(m.Data)
}

// Say makes a signed statement of the controller. The statement bans prefixes for a time, or lifts all bans of the prefixes when length is 0. key is
// the file with the controller's seed; "" means the file in the state directory.
func (c *Client) Say(ctx context.Context, key string, prefixes []netip.Prefix, length time.Duration, why string) error {
	if key == "" {
		key = filepath.Join(c.config.dir, ControllerFile)
	}
	controller, err := readSeed(key)
	if err != nil {
		return err
	}
	now := time.Now().Add(c.ahead)
	var said wire.Offer
	for i, p := range prefixes {
		s := wire.Statement{Origin: wire.Controller, Seq: wire.NextSequence(now, 0) + uint64(i), Reason: why}
		if length > 0 {
			s.Until = now.Add(length).UnixMilli()
		}
		if err := wire.CheckStatement(p, &s, now); err != nil {
			return err
		}
		if s.Sig, err = controller.Sign(wire.Signed(p, &s)); err != nil {
			return fmt.Errorf("key: %w", err)
		}
		said = append(said, wire.Said{Prefix: p, Statement: s})
	}
	return c.offer(ctx, said)
}

func (c *Client) offer(ctx context.Context, said wire.Offer) error {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	m, err := c.conn.RequestWithContext(ctx, adminSay, said.Bytes())
	if err != nil {
		return unreachable(err)
	}
	a, err := wire.ParseAnswer(m.Data)
	if err != nil {
		return fmt.Errorf("answer of a hub: %w", err)
	}
	if skew := time.Now().Add(c.ahead).Sub(a.Now).Round(time.Second); skew.Abs() > wire.Ahead { // if this host's clock is wrong, a lift would not apply to recent statements
		return wording.Hinted(fmt.Sprintf("the clock of this host is %v ahead of that of the hub: what was said may count in part, or not at all", skew),
			"set the clock of both hosts (NTP), and run the same command again")
	}
	for i, o := range a.Outcomes {
		if o == wire.Taken {
			continue
		}
		text := a.Text
		if text == "" {
			text = "the hubs cannot write now"
		}
		return &AnswerError{Result{Error: fmt.Sprintf("%v: %s", said[i].Prefix, text)}}
	}
	return nil
}
