package ban

import (
	"errors"
	"fmt"
	"net/netip"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// errOfRange refuses a further piece of a range whose first piece says why.
var errOfRange = errors.New("the range is refused")

// fits decides whether all pieces of a range fit a set, before any is entered. It lists the entries of the set once, and then follows the
// changes; a block without ranges lists nothing.
type fits struct {
	bans    []Ban
	now     uint32
	set     *addrs.DynamicSet     // that is described by the following
	has     map[netip.Prefix]bool // which of the bans' prefixes
	entries int
	refused int // the last range that is
}

// check returns an error for a piece of a range that does not fit as a whole.
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

// pieces are the prefixes of the range that begins at a ban.
func (f *fits) pieces(i int) (list []netip.Prefix) {
	for _, b := range f.bans[i:] {
		if b.Range != f.bans[i].Range {
			break
		}
		list = append(list, b.Prefix.Masked())
	}
	return list
}

// look finds out what a set holds.
func (f *fits) look(s *addrs.DynamicSet) {
	f.set, f.has, f.entries, f.refused = s, map[netip.Prefix]bool{}, 0, 0
	for _, b := range f.bans {
		f.has[b.Prefix.Masked()] = false
	}
	for entry := range s.All(f.now) {
		if !entry.Automatic { // which gives way
			f.entered(entry.Prefix)
		}
	}
}

// entered notes an entry that the set has now.
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

// whole returns an error when a set has too little space for a range.
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
