package wire

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Subjects of policies. A hub keeps what is below Policy in a stream, and believes nothing of it: nodes verify it.
const (
	Policy       = "fw.policy"
	PolicyHead   = Policy + ".head" // the order that counts
	PolicyNumber = Policy + ".version"
	PolicyFile   = Policy + ".file" // .SHA256.PART
	Policies     = "fw.policies"    // the order that counts, to all nodes
)

// PolicyAskSubject is where a node asks for the order, or for a part of a file.
func PolicyAskSubject(node string) string { return Nodes + "." + node + ".policy" }

// StateSubject is where a node says which policy it has.
func StateSubject(node string) string { return Nodes + "." + node + ".state" }

// FileSubject is where a part of a file is kept.
func FileSubject(sum string, part int) string {
	return PolicyFile + "." + sum + "." + strconv.Itoa(part)
}

// PartSize is how large a part of a file is, but for the last one, in bytes.
const PartSize = 256 << 10

// Parts is how many parts a file of a size has.
func Parts(size int64) int { return int((size + PartSize - 1) / PartSize) }

// Part is a request for a part of a file; its zero value asks for the order.
type Part struct {
	Sum  string // SHA-256 in hexadecimal
	Part int
}

// Bytes is the message.
func (p Part) Bytes() []byte {
	sum, _ := hex.DecodeString(p.Sum) // Parse refuses others
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

// Phase is how far a node has come with a version.
type Phase string

// The phases.
const (
	Waiting Phase = "waiting" // the version is not for this node yet
	Loading Phase = "loading"
	Trial   Phase = "trial"
	Runs    Phase = "runs"
	Failed  Phase = "failed" // the policy before runs
)

// PolicyState is which policy of the fleet a node has.
type PolicyState struct {
	Version uint64    `json:"version"`           // the last that it has seen
	Runs    uint64    `json:"runs"`              // the last that it has confirmed
	Content string    `json:"content,omitempty"` // SHA-256 of what runs; "": nothing of the fleet
	Phase   Phase     `json:"phase,omitempty"`
	Problem string    `json:"problem,omitempty"` // why it failed, or cannot go on
	Drift   string    `json:"drift,omitempty"`   // how the policy that runs is another than the fleet's
	Healthy bool      `json:"healthy"`           // the policy that runs is in force
	Age     float64   `json:"age,omitempty"`     // seconds since a hub heard it, in answers of hubs
	Heard   time.Time `json:"-"`                 // at a hub
}

// maxProblem is how long a text of a node's state may be, in bytes.
const maxProblem = 400

// Bytes is the message.
func (s PolicyState) Bytes() []byte {
	s.Problem, s.Drift = plain(s.Problem), plain(s.Drift)
	text, _ := json.Marshal(s) // of strings and numbers
	return text
}

// plain is a text of printable ASCII in one line.
func plain(text string) string {
	b := []byte(text[:min(len(text), maxProblem)])
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = ' '
		}
	}
	return string(b)
}

// ParsePolicyState reads what a node says of itself. Its texts are shown to people, so they are made plain.
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
