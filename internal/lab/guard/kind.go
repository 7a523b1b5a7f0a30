package guard

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/floodwall/floodwall/internal/lab/rig"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// kind is a kind of packet that a program is given.
type kind struct {
	name   string
	want   uint32                     // what the program must do with it: enum xdp_action. Other figures would mean nothing.
	lines  func(*guard) []string      // the packets, in the notation of package packet; of several, the mean counts
	before string                     // the packet that comes before them, if any,
	times  int                        // how often it comes,
	reply  func(answer []byte) string // and what the sender makes of its answer
}

// The packets. The source is in no list and no rule.
const (
	udp4    = "udp 9.9.9.9:4000 > 10.0.0.2:53 len=46"
	other   = "udp 8.8.8.9:4000 > 10.0.0.2:53 len=46"
	udp6    = "udp [2400::9]:4000 > [fd00::2]:53 len=60"
	tagged  = udp4 + " vlan=10"
	answer  = "udp 9.9.9.9:53 > 10.0.0.2:53 len=46"    // as from a name server that forged questions were sent to
	amplify = "udp 9.9.9.9:161 > 10.0.0.2:53 len=46"   // as from a reflector
	long    = "udp 9.9.9.9:4000 > 10.0.0.2:53 len=540" // 512 bytes of zeros in it
	syn     = "tcp 9.9.9.9:40000 > 10.0.0.2:80 S seq=1000 tcpopts=mss:1460,sack,ts,nop,ws:7"
	windows = "tcp 9.9.9.9:40000 > 10.0.0.2:80 S seq=1000 tcpopts=mss:1460,nop,ws:8,nop,nop,sack"
	blank   = "tcp 9.9.9.9:40000 > 10.0.0.2:80 S seq=1000 tcpopts=none" // as tools that flood send it
	tiny    = "tcp 9.9.9.9:40000 > 10.0.0.2:80 S seq=1000 tcpopts=mss:100,sack,ts,nop,ws:7"
	late    = "tcp 9.9.9.9:40000 > 10.0.0.2:80 S seq=1000 tcpopts=sack,ts,mss:100,nop,ws:7" // the size is not the first option
	bare    = "tcp 9.9.9.9:40000 > 10.0.0.2:80 S seq=1000"                                  // whose answer is acknowledged without a timestamp
	segment = "tcp 9.9.9.9:40000 > 10.0.0.2:80 . seq=1001 ack=1001 len=1500"
	stray   = "tcp 9.9.9.9:40002 > 10.0.0.2:80 . seq=1001 ack=1001"
)

// serviceKinds are packets to a protected UDP service: of a known client, of one with an identifier, and refused ones.
func serviceKinds(u rig.UDPService) []kind {
	name := "udp/"
	if u.Has != "" {
		name += u.Protocol + "/"
	}
	in := func(kindName string, want uint32, line string) kind { return during(name+kindName, u, want, line) }
	kinds := []kind{in("refused", rig.XDPDrop, u.Refused())}
	if u.Has == "" {
		return append(kinds, in("known", rig.XDPPass, u.Known()))
	}
	return append(kinds, in("begins", rig.XDPDrop, u.Beginning()), in("proved", rig.XDPPass, u.Proved()))
}

// during is a kind of packet to a protected UDP service during a flood.
func during(name string, u rig.UDPService, want uint32, line string) kind {
	k := after(name, want, overLimit, u.Beginning())
	k.lines = one(line)
	return k
}

// Packets that arrive on flows that began here.
const (
	reply4   = "tcp 9.9.9.9:443 > 10.0.0.2:40001 . seq=1001 ack=1001 len=1500"
	reply6   = "tcp [2400::9]:443 > [fd00::2]:40001 . seq=1001 ack=1001 len=1500"
	replyUDP = "udp 9.9.9.9:53 > 10.0.0.2:40001 len=512"
)

// openings are the packets that have left, and by each the packet that it is answered with.
var openings = map[string]string{
	"tcp 10.0.0.2:40001 > 9.9.9.9:443 . seq=1 ack=1":    reply4,
	"tcp [fd00::2]:40001 > [2400::9]:443 . seq=1 ack=1": reply6,
	"udp 10.0.0.2:40001 > 9.9.9.9:53":                   replyUDP,
}

// forgedTo is the port of which other flows are open, and which forged answers are for.
var forgedTo = netip.AddrPortFrom(rig.Server4, 40_000)

// forgedReplies is forged answers at random, some of which meet a place of the table that flows have.
func forgedReplies(name string) kind {
	return kind{name: name, want: rig.XDPDrop, lines: func(*guard) (lines []string) {
		for _, from := range rig.RandomHosts(means).Listed {
			lines = append(lines, fmt.Sprintf("tcp %s:443 > %s . seq=1001 ack=1001", from, forgedTo))
		}
		return lines
	}}
}

// ruled is a flood from all sources that the policy of n rules names, in rules for other ports.
func ruled(n int) kind {
	return flood(fmt.Sprintf("rules=%d/listed", n), func(*guard) []netip.Addr { return rig.RuleHosts(n) })
}

// dropped is a kind of packet that is dropped, whatever came before.
func dropped(name, line string) kind { return after(name, rig.XDPDrop, 0, line) }

// after is a kind of packet of which so many came before.
func after(name string, want uint32, times int, line string) kind {
	return kind{name: name, want: want, before: line, times: times, lines: one(line)}
}

func one(line string) func(*guard) []string { return func(*guard) []string { return []string{line} } }

// means is how many sources a mean is of. The tables of lists have random keys, by which an address takes one step more or
// less to find; the mean of so many changes by less than one instruction.
const means = 4096

// flood is packets of sources, which all are to be dropped.
func flood(name string, of func(*guard) []netip.Addr) kind {
	return kind{name: name, want: rig.XDPDrop, lines: func(g *guard) (lines []string) {
		sources := of(g)
		for _, from := range sources[:min(len(sources), means)] {
			lines = append(lines, rig.FloodPacket(from))
		}
		return lines
	}}
}

// forged is a flood from random sources and ports. Some of these share a place in a table with an address or a port that it is for, and
// so cost more than others.
func forged(name string) kind {
	return kind{name: name, want: rig.XDPDrop, lines: func(*guard) (lines []string) {
		r := rand.New(rand.NewPCG(rig.Seed, 0))
		for _, from := range rig.RandomHosts(means).Listed {
			lines = append(lines, fmt.Sprintf("udp %s:%d > %s:%d len=46", from, r.Uint32N(1<<16), rig.Server4, rig.SinkPort))
		}
		return lines
	}}
}

// handshake is the ACK that proves the address of who sent the SYN: it acknowledges the answer.
func handshake(answer []byte) string {
	number := binary.BigEndian.Uint32(packet.Decode(answer).L4[4:])
	return fmt.Sprintf("tcp 9.9.9.9:40000 > 10.0.0.2:80 . seq=1001 ack=%d", number+1)
}

// measure counts what a packet of the kind executes. The clock of the machine stands still meanwhile, as no packet of a
// flood waits for another.
func (k *kind) measure(g *guard, m *Machine) (mean Counts, err error) {
	now := m.Now()
	defer func(clock func() uint64) { m.Now = clock }(m.Now)
	m.Now = func() uint64 { return now }
	m.Forget()
	if err := k.prepare(m); err != nil {
		return mean, err
	}
	lines, sum := k.lines(g), Counts{}
	for _, line := range lines {
		r, err := run(m, line)
		if err != nil {
			return mean, err
		}
		if r.Action != k.want {
			return mean, fmt.Errorf("packet %q: XDP action %d, want %d", line, r.Action, k.want)
		}
		sum = sum.Plus(r.Counts)
	}
	return sum.Over(len(lines)), nil
}

// prepare sends what comes before.
func (k *kind) prepare(m *Machine) error {
	for range k.times {
		r, err := run(m, k.before)
		if err == nil && k.reply != nil {
			_, err = run(m, k.reply(r.Frame))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// run gives a machine a packet.
func run(m *Machine, line string) (Result, error) {
	frame, err := rig.Frame(line)
	if err != nil {
		return Result{}, err
	}
	r, err := m.Run(frame)
	if err != nil {
		return Result{}, fmt.Errorf("packet %q: %w", line, err)
	}
	return r, nil
}
