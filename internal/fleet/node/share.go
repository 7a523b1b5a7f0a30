// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// share limits the part of the set that bans of other nodes may use: 3/8 for all nodes together, and 3/16 for one node. Programs may use 3/4 of a set
// (addrs.DynamicSet), so half of that remains for the programs of this host. Bans of the controller are always entered.
type share struct {
	capacity int // largest number of entries of the set; 0: unknown, no limit
	origin   map[netip.Prefix]string
	of       map[string]int
	crowded  map[netip.Prefix]struct{} // prefixes that are not entered because of the limits
}

func newShare() share {
	return share{origin: map[netip.Prefix]string{}, of: map[string]int{}, crowded: map[netip.Prefix]struct{}{}}
}

// take records that a ban of an origin is entered. It returns false when there is no more space for the ban.
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

// refuse records that the set had no space, because this host's own bans use the space. The ban is tried again later.
func (s *share) refuse(p netip.Prefix) {
	s.free(p)
	s.crowded[p] = struct{}{}
}

// free records that a ban has left the set, or is no longer wanted there.
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
