// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"errors"
	"fmt"
	"net/netip"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// errOfRange is the error for each further piece of a refused range. The error for the first piece says why the range is refused.
var errOfRange = errors.New("the range is refused")

// fits checks that all pieces of a range fit into a set before any piece is added. It lists the entries of the set once, and then keeps track of the
// changes. If no ban belongs to a range, it lists nothing.
type fits struct {
	bans    []Ban
	now     uint32
	set     *addrs.DynamicSet     // the set that the following fields describe
	has     map[netip.Prefix]bool // for each prefix of the bans: whether the set has an entry
	entries int
	refused int // the number of the last range that was refused
}

// check returns an error for the first piece of a range that does not fit as a whole. It returns errOfRange for the further pieces of that range.
func (f *fits) check(s *addrs.DynamicSet, e manifest.Set, i int) error {
	number := f.bans[i].Range
	if number == 0 {
		return nil
	}
	if f.set != s {
		f.look(s)
	}
	if i > 0 && f.bans[i-1].Range == number {
		if f.refused == number {
			return errOfRange
		}
		return nil
	}
	err := f.whole(e, f.pieces(i))
	if err != nil {
		f.refused = number
	}
	return err
}

// pieces returns the prefixes of the range whose first piece is the ban i.
func (f *fits) pieces(i int) (list []netip.Prefix) {
	for _, b := range f.bans[i:] {
		if b.Range != f.bans[i].Range {
			break
		}
		list = append(list, b.Prefix.Masked())
	}
	return list
}

// look reads the entries of a set.
func (f *fits) look(s *addrs.DynamicSet) {
	f.set, f.has, f.entries, f.refused = s, map[netip.Prefix]bool{}, 0, 0
	for _, b := range f.bans {
		f.has[b.Prefix.Masked()] = false
	}
	for entry := range s.All(f.now) {
		if !entry.Automatic { // an automatic entry is evicted when space is needed
			f.entered(entry.Prefix)
		}
	}
}

// entered records that the set now has an entry for p.
func (f *fits) entered(p netip.Prefix) {
	if f.set == nil {
		return
	}
	had, ours := f.has[p]
	if !had {
		f.entries++
	}
	if ours {
		f.has[p] = true
	}
}

// whole returns an error when the set has too little space for all pieces of a range.
func (f *fits) whole(e manifest.Set, pieces []netip.Prefix) error {
	fresh := 0
	for _, p := range pieces {
		if !f.has[p] {
			fresh++
		}
	}
	if f.entries+fresh <= f.set.Capacity() {
		return nil
	}
	from, to := pieces[0].Addr(), netipx.PrefixLastIP(pieces[len(pieces)-1])
	return &SetError{fmt.Sprintf("set %q is full: %d of %d entries, and range %s-%s takes %d more",
		e.Name, f.entries, e.Max, from, to, fresh),
		"raise its max in the policy and apply; or unblock some, or give them shorter times"}
}
