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

// flight is an offer that waits for its answer.
type flight struct {
	number uint64
	said   wire.Offer
	sent   time.Time
	later  bool // the hub said: later
}

// How long to wait for the answer to an offer, and before an offer that was too much is made again.
const (
	offerWait = 5 * time.Second
	laterWait = time.Second
)

// maxOffer is how many statements one offer has.
const maxOffer = 2000

// inbox is the subject of the answer to a request.
func (a *Agent) inbox(kind string, number uint64) string {
	return wire.Inbox(a.file.Name) + "." + kind + "." + strconv.FormatUint(number, 10)
}

// offer sends what is to be said, one offer at a time. Nothing is lost when no answer comes: it stays until the hub has taken it.
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
	_ = a.conn.PublishRequest(wire.OfferSubject(a.file.Name), a.inbox("ban", a.number), said.Bytes()) // else it is said again
}

// gather lists what is to be said.
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

// answered takes the answer to a request of this node.
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

// catchUp takes a part of what this node has missed.
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

// finish takes the outcomes of an offer.
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

// taken notes that the stream has a statement of this node: an answer says so, or the record itself. Answers of hubs that are slow come when
// this node has offered the same again, and do not count.
func (a *Agent) taken(p netip.Prefix, seq uint64) {
	if a.prefixes.decided(p, seq) {
		a.counts.Sent++
	}
}
