package api

import (
	"context"
	"fmt"
	"net/http"
	"os"
)

// Access is what somebody must be allowed to for a route.
type Access int

// The kinds of access.
const (
	Read    Access = iota // what runs, and what it did
	Packets               // also the content of packets
	Change                // what runs
)

// Origin is where a request comes in.
type Origin int

// The origins.
const (
	FromReadSocket    Origin = iota // who may connect to it is a matter of its file mode
	FromControlSocket               // likewise
	FromLoopback                    // any user of this host
	FromRemote                      // who has a certificate
)

var origins = [...]string{"read socket", "control socket", "loopback", "remote"}

// String is the origin's name in the audit.
func (o Origin) String() string { return origins[o] }

// Peer is the process that asks, as the kernel knows it.
type Peer struct{ UID, PID int } // -1 and 0 where that is not known

type peerKey struct{}

// WithPeer is a context of requests by a process.
func WithPeer(ctx context.Context, p Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

func peerIn(ctx context.Context) Peer {
	p, ok := ctx.Value(peerKey{}).(Peer)
	if !ok {
		return Peer{UID: -1}
	}
	return p
}

// permit refuses what the origin of a request does not allow.
func permit(from Origin, by Peer, want Access) error {
	switch {
	case from == FromControlSocket && by.UID != 0 && by.UID != os.Geteuid(): // in case that somebody has changed its mode
		return &Error{http.StatusForbidden, "the control socket is for root", fmt.Sprintf("user %d may ask on the read socket", by.UID)}
	case from == FromControlSocket:
		return nil
	case want == Change:
		return &Error{http.StatusForbidden, fmt.Sprintf("nothing can be changed here: this is the %s", from),
			"ask as root on the control socket, control.sock"}
	case want == Packets && from == FromLoopback:
		return &Error{http.StatusForbidden, "the content of packets is not handed out to every user of this host",
			"ask on the read socket, read.sock, which is for members of the group floodwall"}
	}
	return nil
}
