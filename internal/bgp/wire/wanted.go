// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/policy"
)

// Kind is the method by which an announcement stops packets.
type Kind string

// The kinds.
const (
	FlowSpec Kind = "flowspec" // the packets of a flow
	RTBH     Kind = "rtbh"     // all packets to a destination
)

// Announcement is a route for the routers upstream.
type Announcement struct {
	Kind  Kind      `json:"kind"`
	Flow  Flow      `json:"flow"`  // for RTBH, only the destination is set
	Owner string    `json:"owner"` // the owner: a person, or the daemon
	Why   string    `json:"why,omitempty"`
	Start time.Time `json:"start"` // the announcement is not announced before this time
	End   time.Time `json:"end"`   // the announcement is withdrawn at this time, even when the daemon does not run
	Hold  time.Time `json:"hold"`  // the announcement is not withdrawn before this time, unless a person insists
}

// Key identifies an announcement: there is one for each key.
func (a *Announcement) Key() string { return string(a.Kind) + " " + a.Flow.String() }

// Family returns the family of the announcement's route.
func (a *Announcement) Family() policy.Family {
	four := a.Flow.To.Addr().Is4()
	switch {
	case a.Kind == RTBH && four:
		return policy.IPv4Unicast
	case a.Kind == RTBH:
		return policy.IPv6Unicast
	case four:
		return policy.IPv4FlowSpec
	}
	return policy.IPv6FlowSpec
}

// Out reports whether the announcement must be announced at a time.
func (a *Announcement) Out(at time.Time) bool { return !a.Start.After(at) && a.End.After(at) }

// Full returns a router that accepts no further announcement of a family, or nil. has is the present number of announcements at each router.
func Full(u *policy.Upstream, f policy.Family, has map[netip.Addr]int) *policy.Peer {
	for i, p := range u.Peers {
		if slices.Contains(p.Families, f) && has[p.Address] >= p.Max {
			return &u.Peers[i]
		}
	}
	return nil
}

// Longest is the longest duration of an announcement.
const Longest = 7 * 24 * time.Hour

// The limits of a message.
const (
	MaxAnnouncements = 1000
	maxText          = 200     // bytes of an owner or a reason
	MaxWanted        = 1 << 20 // bytes of a Wanted
)

// Check returns an error for an announcement that is not valid for the routers of a policy.
func (a *Announcement) Check(u *policy.Upstream) error {
	if err := a.Flow.Check(); err != nil {
		return err
	}
	bare := Flow{To: a.Flow.To}
	switch {
	case a.Kind != FlowSpec && a.Kind != RTBH:
		return fmt.Errorf("%q is no kind of announcement", a.Kind)
	case !u.Own(a.Flow.To):
		return &NotOwnError{a.Flow.To}
	case a.Kind == RTBH && bare.String() != a.Flow.String():
		return fmt.Errorf("rtbh drops all packets to %s: it takes nothing but the destination", a.Flow.To)
	case a.Kind == RTBH && !a.Flow.To.IsSingleIP():
		return fmt.Errorf("rtbh gives up one address, and %s has more", a.Flow.To)
	case a.Owner == "" || len(a.Owner) > maxText || len(a.Why) > maxText:
		return fmt.Errorf("an announcement has an owner, and texts of at most %d bytes", maxText)
	case !a.End.After(a.Start) || a.End.Sub(a.Start) > Longest:
		return fmt.Errorf("an announcement lasts up to %v, and not %v", Longest, a.End.Sub(a.Start))
	}
	return nil
}

// NotOwnError says that a destination is not in this network.
type NotOwnError struct{ Prefix netip.Prefix }

func (e *NotOwnError) Error() string { return fmt.Sprintf("%s is not within `announce:`", e.Prefix) }

// Hint is the remedy.
func (e *NotOwnError) Hint() string {
	return "only your own prefixes can be announced: the policy names them, upstream: {announce: [192.0.2.0/24]}"
}

// Wanted contains all sessions and announcements that the daemon wants from the process.
type Wanted struct {
	Upstream      *policy.Upstream  `json:"upstream"`            // nil: no session
	Passwords     map[string]string `json:"passwords,omitempty"` // passwords of sessions, by the router's address
	Announcements []Announcement    `json:"announcements"`
}

// Check returns an error for an invalid Wanted.
func (w *Wanted) Check() error {
	if len(w.Announcements) > MaxAnnouncements {
		return fmt.Errorf("%d announcements are more than %d", len(w.Announcements), MaxAnnouncements)
	}
	if w.Upstream == nil {
		if len(w.Announcements) > 0 {
			return fmt.Errorf("announcements need sessions")
		}
		return nil
	}
	if !w.Upstream.Live && len(w.Announcements) > 0 {
		return fmt.Errorf("a dry run announces nothing")
	}
	if err := w.checkPeers(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i := range w.Announcements {
		a := &w.Announcements[i]
		if err := a.Check(w.Upstream); err != nil {
			return fmt.Errorf("announcement %s: %w", a.Key(), err)
		}
		if seen[a.Key()] {
			return fmt.Errorf("announcement %s appears twice", a.Key())
		}
		seen[a.Key()] = true
	}
	return nil
}

// checkPeers repeats checks of the policy's parser, because this process does not trust the daemon's data.
func (w *Wanted) checkPeers() error {
	u := w.Upstream
	if u.AS == 0 || !u.RouterID.Is4() || len(u.Peers) == 0 || len(u.Peers) > 64 {
		return fmt.Errorf("the sessions want a number of the network, an IPv4 router id and 1 to 64 routers")
	}
	for _, p := range u.Peers {
		if !p.Address.IsValid() || p.AS == 0 || len(p.Families) == 0 || p.Max <= 0 || p.HoldTime < 3*time.Second {
			return fmt.Errorf("the router %s lacks something", p.Address)
		}
		if p.Password != "" && w.Passwords[p.Address.String()] == "" {
			return fmt.Errorf("the router %s lacks its password", p.Address)
		}
	}
	return nil
}
