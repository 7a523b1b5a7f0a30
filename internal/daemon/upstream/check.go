package upstream

import (
	"errors"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/bgp/flowspec"
	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/policy"
)

// Refusal is why a route is not obeyed.
type Refusal struct {
	Kind Kind
	Err  error
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Kind is a kind of refusal, for figures.
type Kind string

// The kinds.
const (
	Malformed   Kind = "malformed"   // it cannot be read
	Unsupported Kind = "unsupported" // it asks for something that Floodwall cannot test, or not do
	Foreign     Kind = "foreign"     // it is not for this host's own prefixes, or not from who may send it
	Excess      Kind = "excess"      // there are more routes than `max`, or than temporary rules
)

// Kinds are all kinds.
var Kinds = []Kind{Malformed, Unsupported, Foreign, Excess}

func refuse(k Kind, format string, args ...any) *Refusal {
	return &Refusal{k, fmt.Errorf(format, args...)}
}

// check reads a route, and decides whether it may be obeyed: RFC 8955, 6, as RFC 9117 amends it. A host knows no routing table that tells to whom a
// destination belongs. In its place stands the policy: the destination must be inside the own prefixes that it names, and the route must come
// from a router that it names, whose AS is the first of the AS path.
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

// firstAS checks that the first AS of the path is that of the router, and that this host's AS is nowhere in it. A router of the own
// network may send its own routes, whose path is empty (RFC 9117, 4.1).
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
