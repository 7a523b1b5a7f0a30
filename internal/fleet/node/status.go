// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// Status is the state of a node in its fleet.
type Status struct {
	Node       string        `json:"node"`
	Connected  bool          `json:"connected"`
	Hub        string        `json:"hub,omitempty"`          // name of the hub to which the node is connected
	Synced     bool          `json:"synced"`                 // the node has received all records of the hub
	Entered    int           `json:"entered"`                // bans of other nodes that this host has
	Crowded    int           `json:"crowded"`                // bans of other nodes that are not entered, because such bans have used up their share of the set
	Own        int           `json:"own"`                    // bans of this host
	Waiting    int           `json:"waiting"`                // own bans and lifts that no hub has received yet
	Refusing   string        `json:"refusing,omitempty"`     // the hub's reason for refusing the waiting bans and lifts
	KeyRefused time.Time     `json:"refused_since,omitzero"` // since when the hubs have refused this node's key
	Offset     time.Duration `json:"offset"`                 // how far the time of the fleet is ahead of this host's, in nanoseconds
	Counts
	Policy *wire.PolicyState `json:"policy,omitempty"` // absent when this node accepts no policies of the fleet
	Time   time.Time         `json:"time"`
}

// Status returns the present state of the node.
func (a *Agent) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := Status{
		Node: a.file.Name, Synced: a.stream.synced && a.stream.behind.IsZero(),
		Entered: a.prefixes.entered, Crowded: len(a.share.crowded), Own: len(a.prefixes.own), Waiting: len(a.prefixes.pending) + len(a.prefixes.lifts),
		Offset: a.clock.ahead, Counts: a.counts, Policy: a.policy, Time: time.Now().UTC(),
	}
	if a.conn != nil && a.conn.IsConnected() {
		s.Connected, s.Hub, s.Refusing = true, a.conn.ConnectedServerName(), a.full
	} else {
		s.KeyRefused = a.refused
	}
	return s
}

// outAtMost is longer than the time for which a hub refuses a node that sent too much.
const outAtMost = 90 * time.Second

// Away returns the reason why a node works without hubs.
func (s *Status) Away() string { return awayText(s.KeyRefused) }

func awayText(refused time.Time) string {
	switch {
	case refused.IsZero():
		return "no connection to a hub"
	case time.Since(refused) < outAtMost:
		return "the hubs refuse its key: it was revoked, or it sent too much and is out for a minute"
	}
	return "the hubs refuse its key: it was revoked; the command that `floodwall-hub invite` prints on a hub brings it back"
}

func statusPath(state string) string { return filepath.Join(state, "fleet.status") }

// Save writes the status to the file that ReadStatus reads.
func (s Status) Save(state string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return writeFile(statusPath(state), text, 0o644)
}

// News reports whether a status must be saved again. This is the case when it differs from the saved one, or when the saved one soon expires. Small
// changes of the time offset do not count, because the offset changes with each message.
func (s *Status) News(saved *Status) bool {
	if s.Time.Sub(saved.Time).Abs() >= staleAfter/2 || (s.Offset-saved.Offset).Abs() >= 100*time.Millisecond {
		return true
	}
	before := *saved
	before.Time, before.Offset = s.Time, s.Offset
	return !reflect.DeepEqual(*s, before)
}

// staleAfter is the age at which a saved status expires.
const staleAfter = 15 * time.Second

// ReadStatus returns the status that the daemon saved last. It is nil when this host is in no fleet. A node whose daemon does not run counts as not
// connected.
func ReadStatus(state string) (*Status, error) {
	f, err := Read(state)
	if errors.Is(err, ErrNotJoined) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &Status{Node: f.Name}
	text, err := os.ReadFile(statusPath(state))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil || s.Node != f.Name || time.Since(s.Time) > staleAfter {
		return &Status{Node: f.Name}, nil
	}
	return s, nil
}
