// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/policy"
)

// Status is the state of the process.
type Status struct {
	Version       string            `json:"version"`
	Live          bool              `json:"live"`     // false: nothing is announced
	Sessions      []Session         `json:"sessions"` // in the order of the policy
	Announcements []AnnouncedStatus `json:"announcements"`
	Announced     uint64            `json:"announced"` // since the process started
	Withdrawn     uint64            `json:"withdrawn"` // since the process started
	Refused       uint64            `json:"refused"`   // invalid announcements, since the process started
	Problem       string            `json:"problem,omitempty"`
}

// Session is the state of a session with a router.
type Session struct {
	Peer       netip.Addr      `json:"peer"`
	AS         uint32          `json:"as"`
	State      string          `json:"state"` // as in RFC 4271, 8.2.2, such as "established"
	Since      time.Time       `json:"since,omitzero"`
	Lost       time.Time       `json:"lost,omitzero"` // when the session last ended, since the process started
	Families   []policy.Family `json:"families"`      // the families that both sides accept, when the session is established
	Announced  int             `json:"announced"`
	Received   int             `json:"received"` // number of received FlowSpec routes
	Restarting bool            `json:"restarting,omitempty"`
	Why        string          `json:"why,omitempty"` // why the session is not established
}

// Established is the state of a session in which routes are exchanged.
const Established = "established"

// AnnouncedStatus is an announcement, with the routers to which it was sent.
type AnnouncedStatus struct {
	Announcement
	Route string       `json:"route"` // the text of the route
	Peers []netip.Addr `json:"peers"` // routers to which the announcement was sent

	Doubtful []netip.Addr `json:"doubtful,omitempty"` // routers to which the announcement was sent, but which refuse it because its next hop is not on their link
}

// Received are the FlowSpec routes that routers sent.
type Received struct {
	Routes []Route      `json:"routes"`
	Left   []netip.Addr `json:"left,omitempty"` // routers whose routes are omitted, because the answer would exceed its size limit
}

// Route is a FlowSpec route as a router sent it. It is not checked: the reader decides whether to obey it.
type Route struct {
	Peer       netip.Addr    `json:"peer"`
	AS         uint32        `json:"as"`              // of the peer
	External   bool          `json:"external"`        // the peer is of another AS than this host
	Family     policy.Family `json:"family"`          // IPv4FlowSpec or IPv6FlowSpec
	NLRI       []byte        `json:"nlri"`            // with its length (RFC 8955, 4)
	Attributes []byte        `json:"attributes"`      // path attributes (RFC 4271, 4.3), one after another
	Stale      bool          `json:"stale,omitempty"` // the peer restarts (RFC 4724)
}
