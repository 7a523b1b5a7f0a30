// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// maxAddresses is the number of protected addresses of a node: the last ones from which it has connected. A connection proves its address, so no node
// can protect addresses of others.
const maxAddresses = 4

// addressOf returns the IP address of a connection. It is not valid for a connection within the process.
func addressOf(a net.Addr) netip.Addr {
	if a == nil {
		return netip.Addr{}
	}
	at, err := netip.ParseAddrPort(a.String())
	if err != nil || at.Addr().IsLoopback() {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// seenAt records the address from which a node has connected, for all hubs.
func (h *Hub) seenAt(name string, a netip.Addr) {
	for range 10 { // the cluster may be electing a leader
		if h.change(name, func(m Member) (*Member, error) {
			if m.State != Joined || slices.Contains(m.Addresses, a) {
				return nil, nil
			}
			m.Addresses = append([]netip.Addr{a}, m.Addresses[:min(len(m.Addresses), maxAddresses-1)]...)
			return &m, nil
		}) == nil {
			return
		}
		time.Sleep(streamWait)
	}
}

// needed returns an error for a prefix that contains a hub or a node, and so must not be banned.
func (h *Hub) needed(p netip.Prefix) error {
	if name, at, ok := h.members.within(p); ok {
		return fmt.Errorf("has node %s of the fleet in it, at %v", name, at)
	}
	for _, peer := range h.config.Hubs {
		host, _, _ := net.SplitHostPort(peer.Nodes)
		if a, err := netip.ParseAddr(host); err == nil && !a.IsLoopback() && p.Contains(a.Unmap()) {
			return fmt.Errorf("has hub %s in it, at %v", peer.Name, a)
		}
	}
	return nil
}

// spares returns an error for a ban of a prefix that the fleet needs. It never refuses a lift.
func (h *Hub) spares(s *wire.Said) error {
	if s.Lift() {
		return nil
	}
	err := h.needed(s.Prefix)
	switch {
	case err == nil:
		return nil
	case s.Origin == wire.Controller: // the controller's command checks the prefix
		return fmt.Errorf("%w, so no node would take the ban: ban smaller prefixes, or revoke a node that is not to be spared", err)
	}
	return fmt.Errorf("%v %w", s.Prefix, err)
}

// peersAsked sends a node the addresses of the other nodes.
func (h *Hub) peersAsked(m *nats.Msg) {
	if node, err := h.sender(m); err == nil && h.policies.may(node, time.Now()) {
		_ = h.conn.Publish(m.Reply, wire.Peers{Addresses: h.members.addresses(node)}.Bytes()) // after an error the node asks again
	}
}
