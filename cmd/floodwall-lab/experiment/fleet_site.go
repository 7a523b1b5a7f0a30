// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/cmd/floodwall-hub/hub"
	"github.com/floodwall/floodwall/internal/fleet/node"
)

// fleetSite is a fleet: three hubs on loopback addresses, and nodes.
type fleetSite struct {
	mu    sync.Mutex
	hubs  []*hub.Hub // nil: killed
	nodes []*member

	watched map[netip.Prefix]*watch
	stop    context.CancelFunc
	ctx     context.Context
	running sync.WaitGroup
}

// watch counts the nodes that have a ban.
type watch struct {
	left int
	done chan time.Time
}

// member is a node with an enforcer that counts.
type member struct {
	site  *fleetSite
	name  string
	home  int // index of the hub that the node prefers
	agent *node.Agent

	mu      sync.Mutex
	cut     bool
	conns   []net.Conn
	dropped map[netip.Prefix]time.Time
}

// fleetNewSite starts three hubs.
func fleetNewSite(ctx context.Context, dir string) (s *fleetSite, err error) {
	s = &fleetSite{watched: map[netip.Prefix]*watch{}, hubs: make([]*hub.Hub, 3)}
	s.ctx, s.stop = context.WithCancel(ctx)
	var peers []hub.Peer
	for i, name := range []string{"a", "b", "c"} {
		p, err := hub.NewPeer(name, fmt.Sprintf("127.0.0.%d", i+1))
		if err != nil {
			return nil, err
		}
		peers = append(peers, p)
	}
	if _, err := hub.Init(dir, peers, hub.DefaultDisk); err != nil {
		return nil, err
	}
	var starting sync.WaitGroup
	errs := make([]error, 3)
	for i, p := range peers {
		starting.Go(func() {
			c, err := hub.Read(filepath.Join(dir, p.Name))
			if err == nil {
				s.hubs[i], err = hub.Start(s.ctx, c, func(string) {})
			}
			errs[i] = err
		})
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *fleetSite) close() {
	s.stop()
	s.running.Wait()
	for i := range s.hubs {
		s.kill(i)
	}
}

func (s *fleetSite) kill(i int) {
	s.mu.Lock()
	h := s.hubs[i]
	s.hubs[i] = nil
	s.mu.Unlock()
	if h != nil {
		h.Close()
	}
}

// join adds nodes, and waits until all are connected.
func (s *fleetSite) join(n int) error {
	var enrolling sync.WaitGroup
	errs := make([]error, 3)
	first := len(s.nodes)
	for i := range n {
		s.nodes = append(s.nodes, &member{site: s, name: fmt.Sprintf("n%d", first+i), home: (first + i) % 3, dropped: map[netip.Prefix]time.Time{}})
	}
	for at := range 3 {
		enrolling.Go(func() {
			for i := first + at; i < first+n && errs[at] == nil; i += 3 {
				errs[at] = s.nodes[i].start()
			}
		})
	}
	enrolling.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return s.until("all nodes are connected", func() bool {
		for _, m := range s.nodes[first:] {
			if st := m.agent.Status(); !st.Connected || !st.Synced {
				return false
			}
		}
		return true
	})
}

func (m *member) start() error {
	key, err := nkeys.CreateUser()
	if err != nil {
		return err
	}
	public, err := key.PublicKey()
	if err != nil {
		return err
	}
	seed, err := key.Seed()
	if err != nil {
		return err
	}
	s := m.site
	s.mu.Lock()
	h := s.hubs[m.home]
	s.mu.Unlock()
	// On a busy machine, hubs that have just started may not be able to write within the time of one request.
	if late := s.until("node "+m.name+" is enrolled", func() bool {
		err = h.Enrol(m.name, public)
		return err == nil
	}); late != nil {
		return errors.Join(late, err)
	}
	m.agent, err = node.New(&node.File{Name: m.name, Seed: string(seed), Hubs: []string{"nats://in.process"}}, m, func(string, error) {}, nats.InProcessServer(m))
	if err != nil {
		return err
	}
	s.running.Go(func() { _ = m.agent.Run(s.ctx) })
	return nil
}

var errCut = errors.New("cut off")

// InProcessConn connects to the hub that the node prefers. If this hub was killed, it connects to another one.
func (m *member) InProcessConn() (net.Conn, error) {
	m.site.mu.Lock()
	var h *hub.Hub
	for i := range 3 {
		if h = m.site.hubs[(m.home+i)%3]; h != nil {
			break
		}
	}
	m.site.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cut || h == nil {
		return nil, errCut
	}
	c, err := h.Server().InProcessConn()
	if err == nil {
		m.conns = append(m.conns[max(len(m.conns)-1, 0):], c)
	}
	return c, err
}

// part disconnects the node if off is true. Otherwise it reconnects the node.
func (m *member) part(off bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = off
	for _, c := range m.conns {
		if off {
			c.Close()
		}
	}
}

// ban makes the node itself ban a prefix.
func (m *member) ban(p netip.Prefix, length time.Duration) {
	now := time.Now()
	m.agent.Local([]node.Local{{Prefix: p, Start: now, End: now.Add(length), Manual: true}}, false)
}

func (m *member) lift(p netip.Prefix) {
	m.agent.Local([]node.Local{{Prefix: p, Gone: true, Start: time.Now()}}, false)
}

// Block records bans of other nodes.
func (m *member) Block(_ context.Context, bans []node.Ban) (map[netip.Prefix]error, error) {
	now := time.Now()
	m.mu.Lock()
	for _, b := range bans {
		m.dropped[b.Prefix] = b.Until
	}
	m.mu.Unlock()
	m.site.mu.Lock()
	defer m.site.mu.Unlock()
	for _, b := range bans {
		if w := m.site.watched[b.Prefix]; w != nil {
			if w.left--; w.left == 0 {
				w.done <- now
			}
		}
	}
	return nil, nil
}

// Unblock removes bans of other nodes.
func (m *member) Unblock(_ context.Context, prefixes []netip.Prefix, _ bool) (were []netip.Prefix, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range prefixes {
		delete(m.dropped, p)
	}
	return nil, nil
}

// Capacity returns 0, because the enforcer has no limit.
func (m *member) Capacity() int { return 0 }

// Never returns a function that exempts no prefix from bans.
func (m *member) Never(context.Context) (func(netip.Prefix) bool, error) {
	return func(netip.Prefix) bool { return false }, nil
}

// count returns the number of bans of other nodes that the node has.
func (m *member) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.dropped)
}

// watch returns a watch for a prefix. Its channel receives the time when the given number of nodes has a ban of the prefix.
func (s *fleetSite) watch(p netip.Prefix, nodes int) *watch {
	w := &watch{nodes, make(chan time.Time, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched[p] = w
	return w
}

const patience = 2 * time.Minute

// wait waits until a watch has finished, and returns the time.
func (s *fleetSite) wait(w *watch, what string) (time.Time, error) {
	select {
	case at := <-w.done:
		return at, nil
	case <-time.After(patience):
		return time.Time{}, fmt.Errorf("%s: not after %v", what, patience)
	case <-s.ctx.Done():
		return time.Time{}, s.ctx.Err()
	}
}

// until waits until holds returns true.
func (s *fleetSite) until(what string, holds func() bool) error {
	for end := time.Now().Add(patience); !holds(); {
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not after %v", what, patience)
		}
	}
	return nil
}
