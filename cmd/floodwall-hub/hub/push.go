// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/floodwall/floodwall/internal/fleet/policies"
	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// pushWait is how long the hubs may take to store a part of a file.
const pushWait = 10 * time.Second

func (c *Client) policyStream(ctx context.Context) (jetstream.JetStream, jetstream.Stream, error) {
	js, err := jetstream.New(c.conn)
	if err != nil {
		return nil, nil, fmt.Errorf("JetStream: %w", err)
	}
	s, err := js.Stream(ctx, policyStream)
	if err != nil {
		return nil, nil, wording.Hinted(fmt.Sprintf("the hubs have no stream of policies: %v", err), "see whether `floodwall-hub run` of this version runs")
	}
	return js, s, nil
}

// Order returns the order of a version, or the current order when version is 0. It returns nil when there is none. The order is not verified.
func (c *Client) Order(ctx context.Context, version uint64) (order []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, pushWait)
	defer cancel()
	_, s, err := c.policyStream(ctx)
	if err != nil {
		return nil, err
	}
	subject := wire.PolicyHead
	if version > 0 {
		subject = wire.PolicyNumber + "." + strconv.FormatUint(version, 10)
	}
	m, err := s.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, unreachable(err)
	}
	return append([]byte{}, m.Data...), nil // an empty order exists, so the result is not nil
}

// Put stores the files of a bundle at the hubs, and then the order. was is the order that was current when the new order was made. If another order
// is current by now, nothing is changed.
func (c *Client) Put(ctx context.Context, was, order []byte, version uint64, content map[string][]byte) error {
	js, s, err := c.policyStream(ctx)
	if err != nil {
		return err
	}
	if err := c.fits(content); err != nil {
		return err
	}
	for sum, b := range content {
		for part := range wire.Parts(int64(len(b))) {
			if err := put(ctx, js, wire.FileSubject(sum, part), b[part*wire.PartSize:min((part+1)*wire.PartSize, len(b))]); err != nil {
				return err
			}
		}
	}
	if err := put(ctx, js, wire.PolicyNumber+"."+strconv.FormatUint(version, 10), order); err != nil {
		return err
	}
	seq := uint64(0)
	if m, err := s.GetLastMsgForSubject(ctx, wire.PolicyHead); err == nil {
		if string(m.Data) != string(was) {
			return wording.Hinted("somebody else has released a policy meanwhile", "run `floodwall-hub fleet status`, and the same command again")
		}
		seq = m.Sequence
	} else if !errors.Is(err, jetstream.ErrMsgNotFound) {
		return unreachable(err)
	}
	return put(ctx, js, wire.PolicyHead, order, jetstream.WithExpectLastSequencePerSubject(seq))
}

// fits returns an error unless the hubs have space for this version and the previous one.
func (c *Client) fits(content map[string][]byte) error {
	size := int64(0)
	for _, b := range content {
		size += int64(len(b))
	}
	if _, most := c.config.Holds(); size > most {
		return wording.Hinted(fmt.Sprintf("the policy and its files have %d bytes, and the disks of the hubs suffice for %d", size, most),
			"make lists smaller, or raise disk_mb in "+configFile+" of each hub")
	}
	return nil
}

func put(ctx context.Context, js jetstream.JetStream, subject string, data []byte, o ...jetstream.PublishOpt) error {
	ctx, cancel := context.WithTimeout(ctx, pushWait)
	defer cancel()
	if _, err := js.Publish(ctx, subject, data, o...); err != nil {
		return wording.Hinted(fmt.Sprintf("the hubs cannot keep the policy: %v", err), "see whether most hubs run and have space on their disks, and run the same command again")
	}
	return nil
}

// File reads a file of a bundle. The content is not verified.
func (c *Client) File(ctx context.Context, f policies.File) (b []byte, err error) {
	_, s, err := c.policyStream(ctx)
	if err != nil {
		return nil, err
	}
	for part := range wire.Parts(f.Size) {
		m, err := s.GetLastMsgForSubject(ctx, wire.FileSubject(f.Sum, part))
		if err != nil {
			return nil, fmt.Errorf("part %d: %w", part, err)
		}
		b = append(b, m.Data...)
	}
	return b, nil
}

// States requests the policy states of nodes from all hubs. If several hubs have a state of a node, the latest one counts.
func (c *Client) States(ctx context.Context) (map[string]wire.PolicyState, error) {
	inbox := c.conn.NewInbox()
	sub, err := c.conn.SubscribeSync(inbox)
	if err == nil {
		err = c.conn.PublishRequest(adminPolicies, inbox, nil)
	}
	if err != nil {
		return nil, unreachable(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	all, heard := map[string]wire.PolicyState{}, 0
	for wait := answerWait; heard < max(len(c.config.Hubs), 1); wait = allWait {
		ctx, cancel := context.WithTimeout(ctx, wait)
		m, err := sub.NextMsgWithContext(ctx)
		cancel()
		if err != nil {
			break
		}
		var s States
		if json.Unmarshal(m.Data, &s) != nil {
			continue
		}
		if len(s.Nodes) < maxStatesAnswer {
			heard++
		}
		for name, state := range s.Nodes {
			if known, ok := all[name]; !ok || state.Age < known.Age {
				all[name] = state
			}
		}
	}
	if heard == 0 {
		return nil, unreachable(errors.New("no answer"))
	}
	return all, nil
}
