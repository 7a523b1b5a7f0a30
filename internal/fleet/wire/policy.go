// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Subjects of policies. A hub stores messages below Policy in a stream. It does not verify the messages; nodes verify them.
const (
	Policy       = "fw.policy"
	PolicyHead   = Policy + ".head" // the current order
	PolicyNumber = Policy + ".version"
	PolicyFile   = Policy + ".file" // .SHA256.PART
	Policies     = "fw.policies"    // the current order, to all nodes
)

// PolicyAskSubject is the subject on which a node requests the order, or a part of a file.
func PolicyAskSubject(node string) string { return Nodes + "." + node + ".policy" }

// StateSubject is the subject on which a node reports its policy state.
func StateSubject(node string) string { return Nodes + "." + node + ".state" }

// FileSubject is the subject under which a part of a file is stored.
func FileSubject(sum string, part int) string {
	return PolicyFile + "." + sum + "." + strconv.Itoa(part)
}

// PartSize is the size of a part of a file, except for the last one, in bytes.
const PartSize = 256 << 10

// Parts returns the number of parts of a file.
func Parts(size int64) int { return int((size + PartSize - 1) / PartSize) }

// Part is a request for a part of a file. Its zero value requests the order.
type Part struct {
	Sum  string // SHA-256 in hexadecimal
	Part int
}

// Bytes is the message.
func (p Part) Bytes() []byte {
	sum, _ := hex.DecodeString(p.Sum) // Parse refuses invalid digits
	return append(append([]byte{version}, sum...), byte(p.Part>>8), byte(p.Part))
}

// ParsePart reads a request.
func ParsePart(b []byte) (p Part, err error) {
	c := cursor{rest: b}
	c.version()
	if len(c.rest) == 2 && c.err == nil {
		return p, nil
	}
	p.Sum = hex.EncodeToString(c.bytes(32))
	p.Part = int(c.byte())<<8 | int(c.byte())
	return p, c.end()
}

// Phase is the progress of a node with a version.
type Phase string

// The phases.
const (
	Waiting Phase = "waiting" // the version is not for this node yet
	Loading Phase = "loading"
	Trial   Phase = "trial"
	Runs    Phase = "runs"
	Failed  Phase = "failed" // the previous policy runs
)

// PolicyState is the state of a node's policy in relation to the policies of the fleet.
type PolicyState struct {
	Version uint64    `json:"version"`           // the last version that the node has received
	Runs    uint64    `json:"runs"`              // the last version that the node has confirmed
	Content string    `json:"content,omitempty"` // SHA-256 of the running version's files; "": no policy of the fleet runs
	Phase   Phase     `json:"phase,omitempty"`
	Problem string    `json:"problem,omitempty"` // why the version failed, or why the node cannot continue
	Drift   string    `json:"drift,omitempty"`   // how the running policy differs from the policy of the fleet
	Healthy bool      `json:"healthy"`           // the running policy is in force
	Age     float64   `json:"age,omitempty"`     // seconds since a hub received this state; only in answers of hubs
	Heard   time.Time `json:"-"`                 // when a hub received this state
}

// maxProblem is the greatest length of a text in a node's state, in bytes.
const maxProblem = 400

// Bytes is the message.
func (s PolicyState) Bytes() []byte {
	s.Problem, s.Drift = plain(s.Problem), plain(s.Drift)
	text, _ := json.Marshal(s) // cannot fail for strings and numbers
	return text
}

// plain converts a text to printable ASCII in one line.
func plain(text string) string {
	b := []byte(text[:min(len(text), maxProblem)])
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = ' '
		}
	}
	return string(b)
}

// ParsePolicyState parses a node's state. It converts the texts with plain, because they are shown to people.
func ParsePolicyState(b []byte) (s PolicyState, err error) {
	if len(b) > 4<<10 {
		return s, errors.New("the state of a node is too long")
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("state of a node: %w", err)
	}
	switch s.Phase {
	case "", Waiting, Loading, Trial, Runs, Failed:
	default:
		return s, fmt.Errorf("state of a node: phase %q", plain(string(s.Phase)))
	}
	if _, err := hex.DecodeString(s.Content); err != nil || len(s.Content) != 64 && s.Content != "" {
		return s, errors.New("state of a node: its content is no SHA-256")
	}
	s.Problem, s.Drift = plain(s.Problem), plain(s.Drift)
	return s, nil
}
