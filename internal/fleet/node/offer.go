// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// flight is an offer that has no answer yet.
type flight struct {
	number uint64
	said   wire.Offer
	sent   time.Time
	later  bool // the hub's outcome was Later
}

// How long to wait for the answer to an offer, and how long before an offer with the outcome Later is repeated.
const (
	offerWait = 5 * time.Second
	laterWait = time.Second
)

// maxOffer is the largest number of statements in an offer.
const maxOffer = 2000

// inbox returns the subject for the answer to a request.
func (a *Agent) inbox(kind string, number uint64) string {
	return wire.Inbox(a.file.Name) + "." + kind + "." + strconv.FormatUint(number, 10)
}

// offer sends pending statements, one offer at a time. A statement stays pending until a hub has accepted it.
func (a *Agent) offer() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.conn.IsConnected() || !a.clock.known() {
		return
	}
	if f := a.flight; f != nil && time.Since(f.sent) < map[bool]time.Duration{false: offerWait, true: laterWait}[f.later] {
		return
	}
	said := a.gather()
	if len(said) == 0 {
		a.flight = nil
		return
	}
	a.number++
	a.flight = &flight{number: a.number, said: said, sent: time.Now()}
	_ = a.conn.PublishRequest(wire.OfferSubject(a.file.Name), a.inbox("ban", a.number), said.Bytes()) // after an error, the offer is sent again
}

// gather returns the pending statements.
func (a *Agent) gather() (said wire.Offer) {
	for p := range a.prefixes.lifts {
		if said = append(said, wire.Said{Prefix: p, Statement: *a.prefixes.of(p).lift}); len(said) == maxOffer {
			return said
		}
	}
	for p := range a.prefixes.pending {
		if said = append(said, wire.Said{Prefix: p, Statement: a.say(a.prefixes.of(p).own)}); len(said) == maxOffer {
			return said
		}
	}
	return said
}

// answered processes the answer to a request of this node.
func (a *Agent) answered(m *nats.Msg) {
	kind, text, _ := strings.Cut(strings.TrimPrefix(m.Subject, wire.Inbox(a.file.Name)+"."), ".")
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch kind {
	case "ban":
		a.finish(m, number)
	case "sync":
		a.catchUp(m, number)
	case "peers":
		a.tellPeers(m)
	}
	a.poke()
}

// catchUp processes a part of the records that this node has missed.
func (a *Agent) catchUp(m *nats.Msg, number uint64) {
	b, err := wire.ParseBatch(m.Data)
	if err != nil || number != a.stream.request {
		return
	}
	a.stream.asked = time.Now()
	if !a.take(b, false) {
		return
	}
	if b.Through > 0 || len(b.Records) == 0 {
		a.stream.complete(b.Through)
		a.offerAgain()
	}
}

// finish processes the outcomes of an offer.
func (a *Agent) finish(m *nats.Msg, number uint64) {
	answer, err := wire.ParseAnswer(m.Data)
	f := a.flight
	if err != nil || f == nil || f.number != number || len(answer.Outcomes) != len(f.said) {
		return
	}
	a.heard(anyHub, answer.Now)
	rejected := 0
	for i, o := range answer.Outcomes {
		switch o {
		case wire.Later:
			f.later = true
			continue
		case wire.Refused:
			rejected++
		case wire.Taken:
			a.taken(f.said[i].Prefix, f.said[i].Seq)
			continue
		}
		a.prefixes.decided(f.said[i].Prefix, f.said[i].Seq)
	}
	a.counts.Rejected += uint64(rejected)
	if rejected > 0 {
		go a.log("", fmt.Errorf("fleet: the hub refuses %d of %d statements: %s", rejected, len(f.said), answer.Text))
	}
	if a.full = ""; f.later {
		a.full = answer.Text
	} else {
		a.flight = nil
	}
}

// taken records that the stream contains a statement of this node. The agent learns this from an answer or from the record itself. If this node has
// offered the same statement again, a late answer of a slow hub is ignored.
func (a *Agent) taken(p netip.Prefix, seq uint64) {
	if a.prefixes.decided(p, seq) {
		a.counts.Sent++
	}
}
