// SPDX-License-Identifier: Apache-2.0

// This file describes the fleet's common view of the traffic. In: the summary that each node makes of its last ten seconds. Out: one view of all
// nodes: the rates, the nodes under attack, attacks that several nodes see as one, and the sources that send most.
//
// summary.go defines a node's summary and its checks, board.go stores the latest summary of each node, view.go merges them.

package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"
)

// The size limits of messages about traffic, in bytes.
const (
	MaxSummary = 4 << 10
	MaxView    = MaxMessage // for commands; those for nodes are far shorter
	maxWord    = 64
)

// EncodeSummary is the message with a node's summary.
func EncodeSummary(s *Summary) []byte {
	to := binary.AppendUvarint([]byte{version}, uint64(s.Span.Milliseconds()))
	to = binary.AppendUvarint(to, uint64(len(s.Decided)))
	for _, a := range s.Decided {
		to = binary.AppendUvarint(binary.AppendUvarint(to, a.Packets), a.Bytes)
	}
	to = binary.AppendUvarint(to, uint64(len(s.Attacks)))
	for i := range s.Attacks {
		to = appendText(appendText(to, s.Attacks[i].Kind), s.Attacks[i].Service)
		to = binary.AppendUvarint(binary.AppendUvarint(to, uint64(s.Attacks[i].Started)), s.Attacks[i].Packets)
	}
	to = binary.AppendUvarint(to, uint64(s.OneIn))
	to = binary.AppendUvarint(to, uint64(len(s.Talkers)))
	for _, t := range s.Talkers {
		to = binary.AppendUvarint(binary.AppendUvarint(appendPrefix(to, t.Prefix), t.Packets), t.Error)
	}
	return binary.AppendUvarint(to, s.Missed)
}

// ParseSummary parses a summary, and refuses impossible values.
func ParseSummary(b []byte) (s Summary, err error) {
	if len(b) > MaxSummary {
		return s, fmt.Errorf("a summary of %d bytes, at most %d are taken", len(b), MaxSummary)
	}
	c := cursor{rest: b}
	c.version()
	s.Span = time.Duration(min(c.number(), 1<<32)) * time.Millisecond
	if n := c.count(len(s.Decided)); n != len(s.Decided) && c.err == nil {
		c.fail(fmt.Errorf("%d verdicts, want %d", n, len(s.Decided)))
	}
	for i := range s.Decided {
		s.Decided[i] = Amount{Packets: c.number(), Bytes: c.number()}
	}
	for range c.count(MaxAttacks) {
		s.Attacks = append(s.Attacks, Attack{Kind: c.text(maxWord), Service: c.text(maxWord), Started: c.time(), Packets: c.number()})
	}
	s.OneIn = uint32(min(c.number(), 1<<32-1))
	for range c.count(MaxTalkers) {
		s.Talkers = append(s.Talkers, Talker{Prefix: c.prefix(), Packets: c.number(), Error: c.number()})
	}
	s.Missed = c.number()
	if err := c.end(); err != nil {
		return s, err
	}
	return s, s.Check()
}

// EncodeView is the message with a hub's view of the fleet.
func EncodeView(v *View) []byte {
	text, _ := json.Marshal(v) // cannot fail for texts and numbers
	return text
}

// ParseView reads a view.
func ParseView(b []byte) (*View, error) {
	if len(b) > MaxView {
		return nil, fmt.Errorf("a view of %d bytes, at most %d are taken", len(b), MaxView)
	}
	v := &View{}
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	return v, nil
}
