// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// peers contains the addresses of the other nodes, sorted. Bans of the fleet do not apply to them.
type peers struct {
	list  []netip.Addr
	asked time.Time
}

// in reports whether a prefix contains an address of a node.
func (s *peers) in(p netip.Prefix) bool {
	at, _ := slices.BinarySearchFunc(s.list, p.Masked().Addr(), netip.Addr.Compare)
	return at < len(s.list) && p.Contains(s.list[at])
}

// askPeers requests the addresses of the nodes from a hub, when a request is due.
func (a *Agent) askPeers() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.conn.IsConnected() || time.Since(a.peers.asked) < lookNever {
		return
	}
	a.peers.asked = time.Now()
	a.number++
	_ = a.conn.PublishRequest(wire.PeersSubject(a.file.Name), a.inbox("peers", a.number), nil) // after an error, the request is sent again
}

// tellPeers processes the addresses of the nodes.
func (a *Agent) tellPeers(m *nats.Msg) {
	p, err := wire.ParsePeers(m.Data)
	if err != nil {
		return
	}
	slices.SortFunc(p.Addresses, netip.Addr.Compare)
	if !slices.Equal(p.Addresses, a.peers.list) {
		a.peers.list = p.Addresses
		a.allowlistChanged()
	}
}

// Fleet returns the addresses of the hubs and of the other nodes, sorted.
func (a *Agent) Fleet() []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := append(a.hubs.all(), a.peers.list...)
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}
