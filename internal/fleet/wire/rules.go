// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Longest is the longest duration of a fleet's ban. It limits how long a lift must be stored.
const Longest = 30 * 24 * time.Hour

// Ahead is how far in the future the time of a statement may be. Corrected clocks differ by less.
const Ahead = 5 * time.Second

// The prefix lengths that nodes may ban. There are few, because a set of the kernel can have 8 prefix lengths of a family, and nodes must not use up
// all of them. The controller may ban any length.
var (
	lengths4 = []int{24, 32}
	lengths6 = []int{48, 56, 64, 128}
)

// The limits of a record. The record of a ban need not name all nodes with the same ban. A node that states different ends again and again is faulty.
const (
	maxBans     = 32 // bans of a prefix
	maxOfOrigin = 4  // of one origin

	// maxEarlyLifts is the number of statements up to which a record stores a lift without a ban. Such a lift is stored because its ban may still
	// arrive through another hub. The ban may also be in a write with an unknown result, because the leader of the stream has failed.
	maxEarlyLifts = 64

	// MaxStatements is the largest number of statements of a record, including lifts. Statements of the controller are always added.
	MaxStatements = 128
)

// ErrEnough is the error for a statement about a prefix that enough nodes ban. The statement may be offered again later.
var ErrEnough = errors.New("enough nodes ban this prefix")

// Admit adds a statement to a record, within the record's limits. Only the hub calls Admit, for each prefix in one order. All other hosts merge whole
// records, so the limits cannot make records differ between hosts.
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

// BannedBy reports whether a record has a ban that a lift of the same origin ends.
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

// Open reports whether a record can take the ban of one more node.
func (r Record) Open() bool {
	return r.bans() < maxBans && len(r.Statements) < MaxStatements-maxOfOrigin
}

// ErrEnded is the error for a ban whose end has passed. This is no fault of the sender, because the ban may have waited for a hub.
var ErrEnded = errors.New("the ban has ended")

// CheckStatement returns an error for a statement that is impossible at a time, or that its origin must not make. It does not check signatures.
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

// Shared reports whether nodes may ban prefixes of this length.
func Shared(p netip.Prefix) bool {
	if p.Addr().Is4() {
		return slices.Contains(lengths4, p.Bits())
	}
	return slices.Contains(lengths6, p.Bits())
}

// Signed returns the bytes that the controller signs for a statement.
func Signed(p netip.Prefix, s *Statement) []byte {
	text := []byte("floodwall fleet statement 1\n" + p.String() + "\n")
	text = binary.BigEndian.AppendUint64(text, s.Seq)
	text = binary.BigEndian.AppendUint64(text, uint64(s.Until))
	return append(text, s.Reason...)
}

// Allowance is a token bucket for the statements of one origin. It allows Rate statements a second, and bursts of Burst seconds of that rate.
type Allowance struct {
	Rate  float64 // statements a second
	Burst float64 // seconds

	left float64
	at   time.Time
}

// Take takes n statements from the allowance. It returns false when there are fewer.
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
