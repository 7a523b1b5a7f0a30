// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/bgp/flowspec"
	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/policy"
)

// Refusal is the reason why a route is not obeyed.
type Refusal struct {
	Kind Kind
	Err  error
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Kind is the kind of a refusal, for metrics.
type Kind string

// The kinds.
const (
	Malformed   Kind = "malformed"   // the route cannot be parsed
	Unsupported Kind = "unsupported" // the route has a test or an action that Floodwall does not support
	Foreign     Kind = "foreign"     // the route is not for this host's own prefixes, or its sender must not send it
	Excess      Kind = "excess"      // there are more routes than `max`, or more rules than temporary rules allow
)

// Kinds contains all kinds.
var Kinds = []Kind{Malformed, Unsupported, Foreign, Excess}

func refuse(k Kind, format string, args ...any) *Refusal {
	return &Refusal{k, fmt.Errorf(format, args...)}
}

// check parses a route, and decides whether to obey it: RFC 8955, 6, as amended by RFC 9117. A host has no routing table that shows who owns a
// destination. The policy replaces that table: the destination must be inside the policy's own prefixes. The route must come from a router in the
// policy, and the router's AS must be the first in the AS path.
func check(r *wire.Route, u *policy.Upstream) (flowspec.Route, *Refusal) {
	i := slices.IndexFunc(u.Peers, func(p policy.Peer) bool { return p.Address == r.Peer })
	if i < 0 || !u.Receive.Takes(r.Peer) {
		return flowspec.Route{}, refuse(Foreign, "the policy does not name %s as a router whose FlowSpec routes are taken", r.Peer)
	}
	peer := u.Peers[i]
	if r.Family != policy.IPv4FlowSpec && r.Family != policy.IPv6FlowSpec || !slices.Contains(peer.Families, r.Family) {
		return flowspec.Route{}, refuse(Foreign, "the policy does not name the family %q for %s", r.Family, r.Peer)
	}
	flow, rest, err := flowspec.Decode(r.NLRI, r.Family == policy.IPv6FlowSpec)
	if err == nil && len(rest) > 0 {
		err = errors.New("has bytes after its end")
	}
	if errors.Is(err, flowspec.ErrUntestable) {
		return flowspec.Route{}, &Refusal{Unsupported, err}
	} else if err != nil {
		return flowspec.Route{}, &Refusal{Malformed, err}
	}
	to := flow.DestinationPrefix()
	if !to.IsValid() {
		return flowspec.Route{}, refuse(Foreign, "it has no destination: %s", flow)
	}
	if !u.Own(to) {
		return flowspec.Route{}, refuse(Foreign, "%s is not inside the own prefixes that the policy names under announce", to)
	}
	a, err := readAttributes(r.Attributes)
	if err != nil {
		return flowspec.Route{}, &Refusal{Malformed, err}
	}
	if err := firstAS(&a, u, peer); err != nil {
		return flowspec.Route{}, &Refusal{Foreign, err}
	}
	action, err := flowspec.ActionOf(a.communities)
	if err != nil {
		return flowspec.Route{Flow: flow}, &Refusal{Unsupported, err}
	}
	return flowspec.Route{Flow: flow, Action: action}, nil
}

// firstAS checks that the first AS of the path is the router's AS, and that this host's AS is not in the path. A router in the host's own network may
// send its own routes, which have an empty path (RFC 9117, 4.1).
func firstAS(a *attributes, u *policy.Upstream, peer policy.Peer) error {
	switch {
	case slices.Contains(a.path, u.LocalAS(peer)):
		return fmt.Errorf("its AS path has the AS of this host, %d", u.LocalAS(peer))
	case !u.External(peer):
		return nil
	case a.empty || len(a.path) == 0 || a.path[0] != peer.AS:
		return fmt.Errorf("its AS path does not begin with %d, the AS of %s", peer.AS, peer.Address)
	}
	return nil
}
