// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestFlowPressure makes one network open more connections than the table of flows holds. At the same time, ACKs without a connection arrive from
// random sources. Other clients have long-lasting connections, most of which are silent. The table must keep these, and they must continue.
func TestFlowPressure(t *testing.T) {
	const lasting, idle, opened, forged = 40, 30, 2500, 20_000
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			r := testutil.Random(t)
			synInScene(t, mode, 2, 1500, func(s *synScene) {
				s.target = plan.TargetXDP
				s.echo()
				s.protect("when: always, flows: 1000", "") // the table has 2048 slots
				var connections []net.Conn
				for i := range lasting {
					c, err := s.dial(s.clients[0], servers[i%2])
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					connections = append(connections, c)
				}
				talk := func(some []net.Conn, when string) {
					for _, c := range some {
						if err := converse(c, "hello"); err != nil {
							t.Errorf("%s: %v", when, err)
						}
					}
				}
				talk(connections, "at first")
				s.ageFlows(70)
				talk(connections, "after a minute")
				if n := s.lastingFlows(); n != lasting {
					t.Errorf("%d connections are known to last, want %d", n, lasting)
				}
				var group sync.WaitGroup
				forger := s.newPeer(servers[0], 1)
				group.Go(func() { forger.forgeACKs(r, forged) })
				group.Go(func() { s.openMany(s.clients[1], opened) })
				for range 10 {
					talk(connections[idle:], "beside the floods")
				}
				group.Wait()
				for range 20 { // a busy machine loses SYNs in full queues
					if p, _ := s.status(); p.Flows.Entries >= p.Flows.Capacity/2 {
						break
					}
					s.openMany(s.clients[1], opened/5)
				}
				if n := s.lastingFlows(); n != lasting {
					t.Errorf("%d of %d connections that last are remembered", n, lasting)
				}
				talk(connections, "behind the floods")
				p, counts := s.status()
				if p.Flows.Entries < p.Flows.Capacity/2 || counts["invalid"] == 0 {
					t.Errorf("the table is not pressed: %d of %d, counted %v", p.Flows.Entries, p.Flows.Capacity, counts)
				}
			})
		})
	}
}

// editFlows applies a function to all entries in the table of flows.
func (s *synScene) editFlows(change func(word uint64) uint64) {
	s.Helper()
	pins, err := filepath.Glob(s.Dir + "/generation-*/flows")
	if err != nil || len(pins) != 1 {
		s.Fatalf("flows: %v, %v", pins, err)
	}
	m, err := ebpf.LoadPinnedMap(pins[0], nil)
	if err != nil {
		s.Fatal(err)
	}
	defer m.Close()
	for i := range m.MaxEntries() {
		var words [image.FlowSlots]uint64
		if err := m.Lookup(i, &words); err != nil {
			s.Fatal(err)
		}
		before := words
		for j := range words {
			words[j] = change(words[j])
		}
		if words != before {
			if err := m.Put(i, words); err != nil {
				s.Fatal(err)
			}
		}
	}
}

// The position and the mask of the state in an entry of the table: see bpf/flow.h.
const stateShift, stateMask = 24, 7

// ageFlows makes each flow's last packet older by the given number of seconds.
func (s *synScene) ageFlows(seconds uint64) {
	s.Helper()
	s.editFlows(func(word uint64) uint64 {
		if word != 0 {
			word -= seconds
		}
		return word
	})
}

// lastingFlows returns the number of flows that the kernel has had for longer than a minute.
func (s *synScene) lastingFlows() (n int) {
	s.Helper()
	s.editFlows(func(word uint64) uint64 {
		if datapath.FlowState(word>>stateShift&stateMask) == datapath.Lasting {
			n++
		}
		return word
	})
	return n
}

// openMany starts connections from one address, and sends data on those that are established. It keeps all of them open until the test ends.
func (s *synScene) openMany(from *lab.Host, n int) {
	err := from.Do(func() error {
		var opened []int
		for range n {
			for _, fd := range opened[max(0, len(opened)-2):] {
				unix.Write(fd, []byte("x")) // the kernel may not have this connection yet
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			s.Cleanup(func() { unix.Close(fd) })
			opened = append(opened, fd)
			if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(servers[0].Port()), Addr: servers[0].Addr().As4()}); !errors.Is(err, unix.EINPROGRESS) && err != nil {
				return err
			}
		}
		for _, fd := range opened {
			unix.Write(fd, []byte("y"))
		}
		return nil
	})
	if err != nil {
		s.Error(fmt.Errorf("opening %d connections: %w", n, err))
	}
}

// forgeACKs sends ACKs that belong to no connection, from random sources.
func (p *peer) forgeACKs(r *rand.Rand, n int) {
	for range n {
		p.from = netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(11 + r.IntN(100)), byte(r.Uint32()), byte(r.Uint32()), 1}), uint16(r.Uint32()))
		p.seq, p.ack = r.Uint32(), r.Uint32()
		p.send(segment{flags: "."})
	}
}
