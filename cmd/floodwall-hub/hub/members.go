// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// Member is the fleet's data about a node.
type Member struct {
	Name    string    `json:"name"`
	State   State     `json:"state"`
	Since   time.Time `json:"since"`
	Key     string    `json:"key,omitempty"`    // public
	Secret  string    `json:"secret,omitempty"` // SHA-256 of the invitation's secret
	Expires time.Time `json:"expires,omitzero"` // end of the invitation

	Addresses []netip.Addr `json:"addresses,omitempty"` // addresses from which the node has connected, the latest first
}

// State is the state of a node's membership.
type State string

// The states.
const (
	Invited State = "invited"
	Joined  State = "joined"
	Revoked State = "revoked"
)

// members contains the nodes, as the stream of members has them.
type members struct {
	mu   sync.RWMutex
	all  map[string]Member
	seqs map[string]uint64     // numbers of the members' messages in the stream
	keys map[string]string     // names by the public keys of joined nodes
	at   map[netip.Addr]string // names by the addresses of joined nodes
}

func newMembers() *members {
	return &members{all: map[string]Member{}, seqs: map[string]uint64{}, keys: map[string]string{}, at: map[netip.Addr]string{}}
}

// parseMember parses a message of the stream.
func parseMember(b []byte) (m Member, err error) {
	if err = json.Unmarshal(b, &m); err == nil {
		err = wire.CheckName(m.Name)
	}
	return m, err
}

// set records a member from the stream. It returns true if the member must be disconnected.
func (s *members) set(m Member, seq uint64) (out bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seq <= s.seqs[m.Name] {
		return false
	}
	was := s.all[m.Name]
	if s.keys[was.Key] == m.Name {
		delete(s.keys, was.Key)
	}
	s.all[m.Name], s.seqs[m.Name] = m, seq
	for _, a := range was.Addresses {
		if s.at[a] == m.Name {
			delete(s.at, a)
		}
	}
	if m.State == Joined {
		for _, a := range m.Addresses {
			s.at[a] = m.Name
		}
	}
	if other, ok := s.keys[m.Key]; m.State == Joined && (!ok || other == m.Name) {
		s.keys[m.Key] = m.Name
	}
	return was.Key != "" && (m.State != Joined || m.Key != was.Key)
}

// get returns a member, and the number of its message.
func (s *members) get(name string) (Member, uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.all[name], s.seqs[name]
}

// named returns the name of the joined node with a key.
func (s *members) named(key string) (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	name, ok := s.keys[key]
	return name, ok
}

// holder returns the name of the member with a key, even if the member is revoked.
func (s *members) holder(key string) (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, m := range s.all {
		if m.Key == key {
			return name, true
		}
	}
	return "", false
}

// joined reports whether a name is that of a joined node.
func (s *members) joined(name string) bool {
	m, _ := s.get(name)
	return m.State == Joined
}

// invited reports whether a secret belongs to a valid invitation. An invitation stays valid for the node that has used it, because the hub's answer
// to that node may have been lost.
func (s *members) invited(name, secret string, now time.Time) bool {
	m, _ := s.get(name)
	return m.Secret != "" && m.State != Revoked && now.Before(m.Expires) && sameText(hashed(secret), m.Secret)
}

// within finds a joined node that has one of its addresses in a prefix.
func (s *members) within(p netip.Prefix) (name string, at netip.Addr, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if p.IsSingleIP() {
		name, ok = s.at[p.Addr()]
		return name, p.Addr(), ok
	}
	for a, name := range s.at {
		if p.Contains(a) {
			return name, a, true
		}
	}
	return "", netip.Addr{}, false
}

// addresses returns the addresses of all joined nodes except the node `but`.
func (s *members) addresses(but string) (list []netip.Addr) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for a, name := range s.at {
		if name != but {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}

// list returns all members, sorted by name.
func (s *members) list() (list []Member) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, m := range s.all {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
