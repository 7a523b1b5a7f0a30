// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
)

// reuse describes a connection from an address and port whose previous connection is in TIME-WAIT at the server.
type reuse struct {
	name   string
	stamps bool   // the connection has timestamps, later than those of the previous connection
	number uint32 // added to the previous connection's sequence number, modulo 2^32
}

var reuses = []reuse{
	{"later number", false, 1_000_000},
	{"later timestamps, earlier number", true, 1<<32 - 1_000_000},
	{"earlier number, as of another host behind the same NAT", false, 1<<32 - 1_000_000},
}

// TestTimeWait makes clients use a port again while the previous connection of the port is in TIME-WAIT at the server. Each client must reach the
// server as without protection, whether or not the program still knows the previous connection. One case is left out. In mode router, if SYNPROXY's
// SYN is not later, the server answers it with an ACK of the previous connection. Unlike a client, SYNPROXY does not answer this ACK with a reset.
func TestTimeWait(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.target = plan.TargetXDP
				s.echo()
				const small = always + ", flows: 1000" // a small table, which is quick to empty
				for i, syn := range []string{"off", small, small} {
					s.protect(syn, "")
					forgets := i == 2
					for j, r := range reuses {
						if forgets && mode == "router" && r == reuses[2] {
							continue
						}
						for k, to := range servers {
							name := fmt.Sprintf("%s, syn: %s, forgotten: %t, %s", r.name, syn, forgets, family(to))
							s.sub(name, func(s *synScene) { s.reuse(s.newPeer(to, uint16(20_000+100*i+10*j+k)), r, forgets) })
						}
					}
				}
			})
		})
	}
}

// reuse opens a connection, which the server closes, and then another one from the same port.
func (s *synScene) reuse(p *peer, r reuse, forgets bool) {
	s.Helper()
	p.plain = !r.stamps
	p.connect()
	p.say("before")
	p.send(segment{flags: "P.", options: p.stamps(), payload: bye})
	fin := p.want("FIN", func(g *layers.TCP) bool { return g.FIN })
	p.seq, p.ack = p.seq+uint32(len(bye)), fin.Seq+1
	p.send(segment{flags: "F.", options: p.stamps()})
	p.want("ACK", func(g *layers.TCP) bool { return g.Ack == p.seq+1 })
	if got := s.output(s.server, "ss -Htan state time-wait"); got == "" {
		s.Fatal("the server has no connection in TIME-WAIT: the test shows nothing")
	}
	if forgets {
		s.forgetFlows()
	}
	p.seq += r.number
	time.Sleep(10 * time.Millisecond) // the new connection's timestamps must be later
	began := time.Now()
	p.reconnect()
	p.say("anew")
	if took := time.Since(began); took > longest {
		s.Errorf("it takes %v", took)
	}
}

// longest is the time in which a connection must succeed. It is many times the time after which TCP sends a lost segment again, and half of TIME-WAIT.
const longest = 30 * time.Second

// reconnect opens a connection as TCP does. If a received segment does not belong to the connection, it answers with a reset and sends its SYN again
// (RFC 9293, 3.10.7.3).
func (p *peer) reconnect() {
	p.Helper()
	p.ack, p.stamp = 0, 0
	for end := time.Now().Add(longest); time.Now().Before(end); {
		p.send(segment{flags: "S", options: p.synOptions()})
		for got := p.receive(again); got != nil; got = p.receive(again) {
			switch {
			case got.SYN && got.ACK && got.Ack == p.seq+1:
				p.seq, p.ack, p.shut = p.seq+1, got.Seq+1, got.Window == 0
				p.send(segment{flags: ".", options: p.stamps()})
				p.awaitWindow()
				return
			case got.ACK && !got.RST && got.Ack != p.seq+1:
				off := p.seq - got.Ack
				p.send(segment{flags: "R", before: off})
			}
		}
	}
	p.Fatal("no SYN-ACK comes")
}

// forgetFlows makes the program forget all connections, as it does when its table is full.
func (s *synScene) forgetFlows() {
	s.Helper()
	pins, err := filepath.Glob(s.Dir + "/generation-*/" + image.Flows)
	if err != nil || len(pins) == 0 {
		s.Fatalf("table of connections: %v, %v", pins, err)
	}
	for _, pin := range pins {
		m, err := ebpf.LoadPinnedMap(pin, nil)
		if err != nil {
			s.Fatal(err)
		}
		empty := make([]byte, m.ValueSize())
		for i := range m.MaxEntries() {
			if err := m.Put(i, empty); err != nil {
				s.Fatal(err)
			}
		}
		m.Close()
	}
}
