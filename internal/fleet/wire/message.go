// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
)

// version is the version of the message format.
const version = 1

// The limits of a message.
const (
	MaxItems   = 4096
	MaxMessage = 1 << 20 // bytes; NATS's own limit
	maxSig     = 64      // bytes; ed25519
	maxText    = 200     // bytes of an answer
)

// Said is a statement about a prefix.
type Said struct {
	Prefix netip.Prefix
	Statement
}

// Stored is a record with its number in the stream.
type Stored struct {
	Number uint64
	Record
}

func appendStatement(to []byte, s *Statement) []byte {
	to = binary.AppendUvarint(to, s.Seq)
	to = binary.AppendUvarint(to, uint64(s.Until))
	to = appendText(to, s.Reason)
	return appendText(to, string(s.Sig))
}

func (c *cursor) statement() (s Statement) {
	s.Seq = c.number()
	s.Until = c.time()
	s.Reason = c.text(MaxReason)
	if sig := c.text(maxSig); sig != "" {
		s.Sig = []byte(sig)
	}
	return s
}

// time reads a time in milliseconds, up to the year 9999.
func (c *cursor) time() int64 {
	n := c.number()
	if n > 253402300799999 {
		c.fail(fmt.Errorf("%d is no time", n))
		return 0
	}
	return int64(n)
}

// Offer contains the statements that a node sends. The subject of the message names the node.
type Offer []Said

// Bytes is the message.
func (o Offer) Bytes() []byte {
	to := binary.AppendUvarint([]byte{version}, uint64(len(o)))
	for i := range o {
		to = appendPrefix(to, o[i].Prefix)
		to = appendStatement(to, &o[i].Statement)
	}
	return to
}

// ParseOffer parses an offer of an origin.
func ParseOffer(b []byte, origin string) (o Offer, err error) {
	c := cursor{rest: b}
	c.version()
	for range c.count(MaxItems) {
		s := Said{c.prefix(), c.statement()}
		if s.Origin = origin; c.err != nil {
			break
		}
		o = append(o, s)
	}
	return o, c.end()
}

// Outcome is the hub's decision about a statement.
type Outcome byte

// The outcomes.
const (
	Taken   Outcome = iota
	Enough          // enough nodes ban the prefix; the node must offer the ban again when fewer nodes do
	Refused         // the answer's text has the reason; a repeated offer is checked again
	Later           // the hub has too much to do; the node must offer the statement again soon
)

// Answer is a hub's answer to an offer: its time, and an outcome for each statement.
type Answer struct {
	Now      time.Time
	Outcomes []Outcome
	Text     string // why the first refused statement was refused
}

// Bytes is the message.
func (a Answer) Bytes() []byte {
	to := binary.AppendUvarint([]byte{version}, uint64(a.Now.UnixMilli()))
	to = binary.AppendUvarint(to, uint64(len(a.Outcomes)))
	for _, o := range a.Outcomes {
		to = append(to, byte(o))
	}
	return appendText(to, a.Text[:min(len(a.Text), maxText)])
}

// ParseAnswer reads an answer.
func ParseAnswer(b []byte) (a Answer, err error) {
	c := cursor{rest: b}
	c.version()
	a.Now = time.UnixMilli(c.time())
	for _, o := range c.bytes(c.count(MaxItems)) {
		a.Outcomes = append(a.Outcomes, Outcome(o))
	}
	a.Text = c.text(maxText)
	return a, c.end()
}

// Batch contains records from a hub: either new records, or some of the records that a node has missed.
type Batch struct {
	Now     time.Time // of the hub
	Epoch   uint64    // identifies the stream: a stream that replaces a lost one has another epoch
	Through uint64    // in an answer to a node's request: the node now has all records up to this number; 0: more messages follow
	Records []Stored
}

// Bytes is the message.
func (b Batch) Bytes() []byte {
	to := binary.AppendUvarint([]byte{version}, uint64(b.Now.UnixMilli()))
	to = binary.AppendUvarint(binary.AppendUvarint(to, b.Epoch), b.Through)
	to = binary.AppendUvarint(to, uint64(len(b.Records)))
	for i := range b.Records {
		to = binary.AppendUvarint(to, b.Records[i].Number)
		to = appendRecord(to, &b.Records[i].Record)
	}
	return to
}

// ParseBatch parses records. It skips records that are too large or have an invalid origin, so that the other records are not lost.
func ParseBatch(p []byte) (b Batch, err error) {
	c := cursor{rest: p}
	c.version()
	b.Now, b.Epoch, b.Through = time.UnixMilli(c.time()), c.number(), c.number()
	for range c.count(MaxItems) {
		number := c.number()
		r, bad := c.record()
		if c.err != nil {
			break
		}
		if bad == nil {
			b.Records = append(b.Records, Stored{number, r})
		}
	}
	return b, c.end()
}

func appendRecord(to []byte, r *Record) []byte {
	to = appendPrefix(to, r.Prefix)
	to = binary.AppendUvarint(to, uint64(len(r.Statements)))
	for i := range r.Statements {
		to = appendText(to, r.Statements[i].Origin)
		to = appendStatement(to, &r.Statements[i])
	}
	return to
}

// record reads a record. bad is an error that concerns only this record; the rest of the message can still be read.
func (c *cursor) record() (r Record, bad error) {
	r.Prefix = c.prefix()
	n := c.count(MaxMessage)
	if n > MaxStatements {
		bad = fmt.Errorf("%d statements about %v, at most %d are taken", n, r.Prefix, MaxStatements)
	}
	for i := 0; i < n && c.err == nil; i++ {
		name, err := origin(c.text(32))
		if err != nil {
			bad = err
		}
		s := c.statement()
		if s.Origin = name; bad == nil {
			r.Statements = append(r.Statements, s)
		}
	}
	if bad != nil {
		r.Statements = nil
	}
	return r, bad
}

// EncodeRecord returns the message for a prefix in the stream.
func EncodeRecord(r Record) []byte { return appendRecord([]byte{version}, &r) }

// ParseRecord parses a message of the stream.
func ParseRecord(b []byte) (Record, error) {
	c := cursor{rest: b}
	c.version()
	r, bad := c.record()
	return r, cmp.Or(c.end(), bad)
}

// Pulse is the message that a hub sends to all nodes every BeatEvery.
type Pulse struct {
	Hub     uint64    // identifies the hub: a random number, not 0, that the hub chooses when it starts
	Now     time.Time // of the hub
	Epoch   uint64    // of the stream
	Through uint64    // the number of the last record that the hub knows
}

// BeatEvery is the time between two pulses of a hub.
const BeatEvery = 2 * time.Second

// Bytes is the message.
func (p Pulse) Bytes() []byte {
	to := binary.AppendUvarint([]byte{version}, p.Hub)
	to = binary.AppendUvarint(to, uint64(p.Now.UnixMilli()))
	return binary.AppendUvarint(binary.AppendUvarint(to, p.Epoch), p.Through)
}

// ParsePulse reads a pulse.
func ParsePulse(b []byte) (p Pulse, err error) {
	c := cursor{rest: b}
	c.version()
	p.Hub, p.Now, p.Epoch, p.Through = c.number(), time.UnixMilli(c.time()), c.number(), c.number()
	return p, c.end()
}

// After is a node's request for all records with numbers greater than this one.
type After uint64

// Bytes is the message.
func (a After) Bytes() []byte { return binary.AppendUvarint([]byte{version}, uint64(a)) }

// ParseAfter reads a request.
func ParseAfter(b []byte) (After, error) {
	c := cursor{rest: b}
	c.version()
	n := c.number()
	return After(n), c.end()
}
