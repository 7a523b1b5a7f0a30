package node

import (
	"net/netip"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// share bounds how much of the set bans of other nodes take: all of them 3/8, and those of one node 3/16. Programs have 3/4 of a set
// (addrs.DynamicSet), so half of their share stays with the programs of this host. Bans of the controller are always entered.
type share struct {
	capacity int // entries of the set; 0: not known, and nothing is bounded
	origin   map[netip.Prefix]string
	of       map[string]int
	crowded  map[netip.Prefix]struct{} // not entered because of the bounds
}

func newShare() share {
	return share{origin: map[netip.Prefix]string{}, of: map[string]int{}, crowded: map[netip.Prefix]struct{}{}}
}

// take notes that a ban by an origin is entered. It reports false when there is no more space for it.
func (s *share) take(p netip.Prefix, origin string) bool {
	_, has := s.origin[p]
	full := len(s.origin) >= s.capacity*3/8 || s.of[origin] >= s.capacity*3/16
	if !has && s.capacity > 0 && full && origin != wire.Controller {
		s.crowded[p] = struct{}{}
		return false
	}
	s.free(p)
	s.origin[p] = origin
	s.of[origin]++
	return true
}

// refuse notes that the set had no space: this host's own bans have it. It is tried again.
func (s *share) refuse(p netip.Prefix) {
	s.free(p)
	s.crowded[p] = struct{}{}
}

// free notes that a ban is in the set no more, or is not wanted there.
func (s *share) free(p netip.Prefix) {
	delete(s.crowded, p)
	origin, has := s.origin[p]
	if !has {
		return
	}
	delete(s.origin, p)
	if s.of[origin]--; s.of[origin] == 0 {
		delete(s.of, origin)
	}
}
