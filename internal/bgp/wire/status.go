package wire

import (
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/policy"
)

// Status is how the process stands.
type Status struct {
	Version       string            `json:"version"`
	Live          bool              `json:"live"`     // else nothing is announced
	Sessions      []Session         `json:"sessions"` // in the order of the policy
	Announcements []AnnouncedStatus `json:"announcements"`
	Announced     uint64            `json:"announced"` // since the process began
	Withdrawn     uint64            `json:"withdrawn"` // likewise
	Refused       uint64            `json:"refused"`   // what was wanted and is wrong, likewise
	Problem       string            `json:"problem,omitempty"`
}

// Session is that with a router.
type Session struct {
	Peer       netip.Addr      `json:"peer"`
	AS         uint32          `json:"as"`
	State      string          `json:"state"` // of RFC 4271, 8.2.2, as "established"
	Since      time.Time       `json:"since,omitzero"`
	Lost       time.Time       `json:"lost,omitzero"` // when it ended last, since the process began
	Families   []policy.Family `json:"families"`      // that both sides have, once it is established
	Announced  int             `json:"announced"`
	Received   int             `json:"received"` // FlowSpec routes
	Restarting bool            `json:"restarting,omitempty"`
	Why        string          `json:"why,omitempty"` // it is not established
}

// Established is the state of a session in which routes are exchanged.
const Established = "established"

// AnnouncedStatus is an announcement, and which routers have it.
type AnnouncedStatus struct {
	Announcement
	Route string       `json:"route"` // as it goes out
	Peers []netip.Addr `json:"peers"` // those that it was sent to

	Doubtful []netip.Addr `json:"doubtful,omitempty"` // those that it was sent to and that refuse it, as its next hop is not on their link
}

// Received are the FlowSpec routes that routers sent.
type Received struct {
	Routes []Route      `json:"routes"`
	Left   []netip.Addr `json:"left,omitempty"` // routers whose routes are not among them, as they are more than an answer has
}

// Route is a FlowSpec route as a router sent it. Nothing of it has been checked: whether it is to be obeyed is the reader's decision.
type Route struct {
	Peer       netip.Addr    `json:"peer"`
	AS         uint32        `json:"as"`              // of the peer
	External   bool          `json:"external"`        // the peer is of another AS than this host
	Family     policy.Family `json:"family"`          // IPv4FlowSpec or IPv6FlowSpec
	NLRI       []byte        `json:"nlri"`            // with its length (RFC 8955, 4)
	Attributes []byte        `json:"attributes"`      // path attributes (RFC 4271, 4.3), one after another
	Stale      bool          `json:"stale,omitempty"` // the peer restarts (RFC 4724)
}
