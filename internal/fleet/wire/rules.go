package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Longest is how long a ban of the fleet lasts at most, from when it is said. It bounds how long a lift must be remembered.
const Longest = 30 * 24 * time.Hour

// Ahead is how far in the future a statement may be: clocks are corrected to less.
const Ahead = 5 * time.Second

// The lengths of the prefixes that nodes may ban. They are few, as a set of the kernel takes 8 lengths of a family: a node must not use
// them up. The controller may ban any.
var (
	lengths4 = []int{24, 32}
	lengths6 = []int{48, 56, 64, 128}
)

// Limits of one record. Nodes that hold the same ban need not all be named, and one that says different ends in turn is at fault.
const (
	maxBans     = 32 // of a prefix
	maxOfOrigin = 4  // of one origin

	// maxEarlyLifts is how many statements a record has at most when a lift comes for which it has no ban. Such a lift is kept: its ban may
	// be on its way through another hub, or in a write that is in doubt since the leader of the stream died.
	maxEarlyLifts = 64

	// MaxStatements is how many a record has at most, lifts included. Those of the controller are always taken.
	MaxStatements = 128
)

// ErrEnough refuses a statement about a prefix of which enough nodes have spoken. It may be offered again later.
var ErrEnough = errors.New("enough nodes ban this prefix")

// Admit adds a statement to a record within the limits of a record. The hub alone does this, in one order for each prefix. All
// others merge whole records, so the limits cannot make them differ.
func Admit(r Record, s Statement) (Record, error) {
	after := Merge(r, Record{r.Prefix, []Statement{s}})
	if s.Lift() && s.Origin != Controller && !r.BannedBy(s) && len(after.Statements) > maxEarlyLifts {
		return r, nil
	}
	of := 0
	for i := range after.Statements {
		if after.Statements[i].Origin == s.Origin {
			of++
		}
	}
	switch {
	case of > maxOfOrigin:
		return r, fmt.Errorf("%s has %d bans of different ends already", s.Origin, maxOfOrigin)
	case s.Origin != Controller && !s.Lift() && (after.bans() > maxBans || len(after.Statements) > MaxStatements-maxOfOrigin):
		return r, ErrEnough
	}
	return after, nil
}

// BannedBy tells whether a record has a ban that its own origin lifts.
func (r Record) BannedBy(lift Statement) bool {
	return slices.ContainsFunc(r.Statements, func(b Statement) bool { return b.Origin == lift.Origin && !b.Lift() && lift.beats(&b) })
}

func (r Record) bans() (n int) {
	for i := range r.Statements {
		if !r.Statements[i].Lift() {
			n++
		}
	}
	return n
}

// Open tells whether a record takes the ban of one more node.
func (r Record) Open() bool {
	return r.bans() < maxBans && len(r.Statements) < MaxStatements-maxOfOrigin
}

// ErrEnded refuses a ban whose end has passed. It is no fault of the sender: it may have waited for the hub.
var ErrEnded = errors.New("the ban has ended")

// CheckStatement tells why a statement cannot be true at a time, or may not be said by its origin. It does not check signatures.
func CheckStatement(p netip.Prefix, s *Statement, now time.Time) error {
	at, until := SequenceTime(s.Seq), time.UnixMilli(s.Until)
	switch {
	case !p.IsValid() || p != p.Masked() || p.Addr().Is4In6():
		return fmt.Errorf("%v is not a prefix", p)
	case len(s.Reason) > MaxReason:
		return fmt.Errorf("the reason has %d bytes, at most %d are taken", len(s.Reason), MaxReason)
	case at.After(now.Add(Ahead)):
		return fmt.Errorf("it was said %v in the future", at.Sub(now).Round(time.Millisecond))
	case at.Before(now.Add(-Longest)):
		return fmt.Errorf("it was said more than %v ago", Longest)
	case s.Origin != Controller && !Shared(p):
		return fmt.Errorf("%v is not of a length that nodes may ban: /24 and /32, of IPv6 /48, /56, /64 and /128", p)
	case s.Lift():
		return nil
	case until.After(at.Add(Longest)):
		return fmt.Errorf("the ban lasts longer than %v", Longest)
	case !until.After(now):
		return ErrEnded
	}
	return nil
}

// Shared tells whether nodes may ban prefixes of this length.
func Shared(p netip.Prefix) bool {
	if p.Addr().Is4() {
		return slices.Contains(lengths4, p.Bits())
	}
	return slices.Contains(lengths6, p.Bits())
}

// Signed is the text that the controller signs for a statement.
func Signed(p netip.Prefix, s *Statement) []byte {
	text := []byte("floodwall fleet statement 1\n" + p.String() + "\n")
	text = binary.BigEndian.AppendUint64(text, s.Seq)
	text = binary.BigEndian.AppendUint64(text, uint64(s.Until))
	return append(text, s.Reason...)
}

// Allowance bounds how much one origin may say: so many statements a second, and as many at once as come in Burst seconds.
type Allowance struct {
	Rate  float64 // statements a second
	Burst float64 // seconds

	left float64
	at   time.Time
}

// Take takes n statements from the allowance, and reports whether it had them.
func (a *Allowance) Take(now time.Time, n int) bool {
	if a.at.IsZero() {
		a.left = a.Rate * a.Burst
	} else if now.After(a.at) {
		a.left = min(a.Rate*a.Burst, a.left+now.Sub(a.at).Seconds()*a.Rate)
	}
	a.at = now
	if a.left < float64(n) {
		return false
	}
	a.left -= float64(n)
	return true
}
