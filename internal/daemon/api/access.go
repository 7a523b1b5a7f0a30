// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net/http"
	"os"
)

// Access is the kind of access that a route requires.
type Access int

// The kinds of access.
const (
	Read    Access = iota // the running policy, and its counters
	Packets               // as Read, and also the content of packets
	Change                // changes of the running policy
)

// Origin is the socket or kind of address from which a request arrives.
type Origin int

// The origins.
const (
	FromReadSocket    Origin = iota // any user that the file mode of the socket lets connect
	FromControlSocket               // likewise
	FromLoopback                    // any user of this host
	FromRemote                      // clients with a certificate
)

var origins = [...]string{"read socket", "control socket", "loopback", "remote"}

// String returns the origin's name in the audit log.
func (o Origin) String() string { return origins[o] }

// Peer is the process that sends a request, according to the kernel.
type Peer struct{ UID, PID int } // -1 and 0 when unknown

type peerKey struct{}

// WithPeer returns a context for requests of a process.
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

// permit returns an error for access that the origin of a request does not allow.
func permit(from Origin, by Peer, want Access) error {
	switch {
	case from == FromControlSocket && by.UID != 0 && by.UID != os.Geteuid(): // in case the mode of the socket was changed
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
