package node

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// peers are the addresses of the other nodes, sorted. No ban of the fleet has effect on them.
type peers struct {
	list  []netip.Addr
	asked time.Time
}

// in tells whether a prefix has an address of a node.
func (s *peers) in(p netip.Prefix) bool {
	at, _ := slices.BinarySearchFunc(s.list, p.Masked().Addr(), netip.Addr.Compare)
	return at < len(s.list) && p.Contains(s.list[at])
}

// askPeers asks a hub for the addresses of the nodes, when it is due.
func (a *Agent) askPeers() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.conn.IsConnected() || time.Since(a.peers.asked) < lookNever {
		return
	}
	a.peers.asked = time.Now()
	a.number++
	_ = a.conn.PublishRequest(wire.PeersSubject(a.file.Name), a.inbox("peers", a.number), nil) // else it is asked again
}

// tellPeers takes the addresses of the nodes.
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

// Fleet are the addresses of the hubs and of the other nodes, sorted.
func (a *Agent) Fleet() []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := append(a.hubs.all(), a.peers.list...)
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}
