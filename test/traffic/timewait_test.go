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

// reuse is a connection from an address and port that the server has in TIME-WAIT.
type reuse struct {
	name   string
	stamps bool   // it has timestamps, later than those of the connection before
	number uint32 // how far its sequence number is behind that of the connection before
}

var reuses = []reuse{
	{"later number", false, 1_000_000},
	{"later timestamps, earlier number", true, 1<<32 - 1_000_000},
	{"earlier number, as of another host behind the same NAT", false, 1<<32 - 1_000_000},
}

// TestTimeWait has clients use a port again while the server has the connection before in TIME-WAIT. Each reaches the server as
// without protection, whether the program knows the connection before or has forgotten it. One case is left out: in mode router
// the server answers SYNPROXY's SYN with the ACK of the connection before when the SYN is not later, and SYNPROXY, unlike a
// client, sends no reset for it.
func TestTimeWait(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.target = plan.TargetXDP
				s.echo()
				const small = always + ", flows: 1000" // a table that is soon emptied
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

// reuse makes a connection that the server ends, and then another from the same port.
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
	time.Sleep(10 * time.Millisecond) // timestamps must be later
	began := time.Now()
	p.reconnect()
	p.say("anew")
	if took := time.Since(began); took > longest {
		s.Errorf("it takes %v", took)
	}
}

// longest is how long it may take: several times what TCP needs to send a lost segment again, and far less than TIME-WAIT lasts.
const longest = 10 * time.Second

// reconnect makes a connection as TCP does: it answers what belongs to none of its own with a reset, and sends its SYN again
// (RFC 9293, 3.10.7.3).
func (p *peer) reconnect() {
	p.Helper()
	p.ack, p.stamp = 0, 0
	for end := time.Now().Add(longest); time.Now().Before(end); {
		p.send(segment{flags: "S", options: p.synOptions()})
		for got := p.receive(again); got != nil; got = p.receive(again) {
			switch {
			case got.SYN && got.ACK && got.Ack == p.seq+1:
				p.seq, p.ack = p.seq+1, got.Seq+1
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

// forgetFlows has the program forget all connections, as it does when its table is full.
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
