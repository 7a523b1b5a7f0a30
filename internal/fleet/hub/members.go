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

// Member is what the fleet knows of a node.
type Member struct {
	Name    string    `json:"name"`
	State   State     `json:"state"`
	Since   time.Time `json:"since"`
	Key     string    `json:"key,omitempty"`    // public
	Secret  string    `json:"secret,omitempty"` // SHA-256 of an invitation's
	Expires time.Time `json:"expires,omitzero"` // of an invitation

	Addresses []netip.Addr `json:"addresses,omitempty"` // from which it has connected, the last one first
}

// State is how far a node has come.
type State string

// The states.
const (
	Invited State = "invited"
	Joined  State = "joined"
	Revoked State = "revoked"
)

// members are the nodes as the stream of members has them.
type members struct {
	mu   sync.RWMutex
	all  map[string]Member
	seqs map[string]uint64     // of the messages in the stream
	keys map[string]string     // names by public keys of those that have joined
	at   map[netip.Addr]string // names by addresses of those that have joined
}

func newMembers() *members {
	return &members{all: map[string]Member{}, seqs: map[string]uint64{}, keys: map[string]string{}, at: map[netip.Addr]string{}}
}

// parseMember reads a message of the stream.
func parseMember(b []byte) (m Member, err error) {
	if err = json.Unmarshal(b, &m); err == nil {
		err = wire.CheckName(m.Name)
	}
	return m, err
}

// set takes a member from the stream. It returns true for one that must not be connected any more.
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

// get is a member, and the number of its message.
func (s *members) get(name string) (Member, uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.all[name], s.seqs[name]
}

// named is the node with a key.
func (s *members) named(key string) (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	name, ok := s.keys[key]
	return name, ok
}

// holder is the member with a key, also one that was revoked.
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

// joined tells whether a name is that of a node that may speak.
func (s *members) joined(name string) bool {
	m, _ := s.get(name)
	return m.State == Joined
}

// invited tells whether a secret is that of an invitation that holds. It goes on holding for the node that has used it, whose
// answer may have been lost.
func (s *members) invited(name, secret string, now time.Time) bool {
	m, _ := s.get(name)
	return m.Secret != "" && m.State != Revoked && now.Before(m.Expires) && sameText(hashed(secret), m.Secret)
}

// within is a node that has joined, with an address of its own in a prefix.
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

// addresses are those of all nodes that have joined, but for one.
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

// list are all members by name.
func (s *members) list() (list []Member) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, m := range s.all {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
