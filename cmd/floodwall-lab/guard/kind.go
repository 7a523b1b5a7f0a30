// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// kind is a kind of packet for a program.
type kind struct {
	name   string
	want   uint32                     // the required result: enum xdp_action; at tc, enum tcx_action_base. With another result, the figure would be meaningless.
	lines  func(*guard) []string      // the packets, in the notation of package packet; for several, the mean counts
	before string                     // the packet that comes before them, if any
	times  int                        // the number of times that it comes
	reply  func(answer []byte) string // returns the sender's reply to its answer
}

// The packets. The source is in no list and no rule.
const (
	udp4    = "udp 9.9.9.9:4000 > 10.0.0.2:53 len=46"
	other   = "udp 8.8.8.9:4000 > 10.0.0.2:53 len=46"
	udp6    = "udp [2400::9]:4000 > [fd00::2]:53 len=60"
	tagged  = udp4 + " vlan=10"
	answer  = "udp 9.9.9.9:53 > 10.0.0.2:53 len=46"    // like the answer of a name server to a forged query
	amplify = "udp 9.9.9.9:161 > 10.0.0.2:53 len=46"   // like the answer of a reflector
	long    = "udp 9.9.9.9:4000 > 10.0.0.2:53 len=540" // its payload is 512 bytes of zeros
	syn     = "tcp 9.9.9.9:40000 > 10.0.0.2:80 S seq=1000 tcpopts=mss:1460,sack,ts,nop,ws:7"
	windows = "tcp 9.9.9.9:40000 > 10.0.0.2:80 S seq=1000 tcpopts=mss:1460,nop,ws:8,nop,nop,sack"
	blank   = "tcp 9.9.9.9:40000 > 10.0.0.2:80 S seq=1000 tcpopts=none" // flood tools send such SYNs
	tiny    = "tcp 9.9.9.9:40000 > 10.0.0.2:80 S seq=1000 tcpopts=mss:100,sack,ts,nop,ws:7"
	late    = "tcp 9.9.9.9:40000 > 10.0.0.2:80 S seq=1000 tcpopts=sack,ts,mss:100,nop,ws:7" // the size is not the first option
	bare    = "tcp 9.9.9.9:40000 > 10.0.0.2:80 S seq=1000"                                  // the ACK of its answer has no timestamp
	segment = "tcp 9.9.9.9:40000 > 10.0.0.2:80 . seq=1001 ack=1001 len=1500"
	stray   = "tcp 9.9.9.9:40002 > 10.0.0.2:80 . seq=1001 ack=1001"
)

// serviceKinds returns packets to a protected UDP service: of a known client, of a client with an identifier, and refused packets.
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

// during returns a kind of packet to a protected UDP service during a flood.
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

// openings are the packets that left, and the answer to each.
var openings = map[string]string{
	"tcp 10.0.0.2:40001 > 9.9.9.9:443 . seq=1 ack=1":    reply4,
	"tcp [fd00::2]:40001 > [2400::9]:443 . seq=1 ack=1": reply6,
	"udp 10.0.0.2:40001 > 9.9.9.9:53":                   replyUDP,
}

// forgedTo is the address and port with open flows that forged answers are sent to.
var forgedTo = netip.AddrPortFrom(rig.Server4, 40_000)

// forgedReplies returns random forged answers. Some hit an entry of the table that a flow uses.
func forgedReplies(name string) kind {
	return kind{name: name, want: rig.XDPDrop, lines: func(*guard) (lines []string) {
		for _, from := range rig.RandomHosts(means).Listed {
			lines = append(lines, fmt.Sprintf("tcp %s:443 > %s . seq=1001 ack=1001", from, forgedTo))
		}
		return lines
	}}
}

// ruled returns a flood from all sources that the policy of n rules names, to other ports than the rules' ports.
func ruled(n int) kind {
	return flood(fmt.Sprintf("rules=%d/listed", n), func(*guard) []netip.Addr { return rig.RuleHosts(n) })
}

// dropped returns a kind of packet that is dropped in any state.
func dropped(name, line string) kind { return after(name, rig.XDPDrop, 0, line) }

// after returns a kind of packet of which the given number has arrived before.
func after(name string, want uint32, times int, line string) kind {
	return kind{name: name, want: want, before: line, times: times, lines: one(line)}
}

// atTC returns the same kinds for the program at tc.
func atTC(kinds ...kind) []kind {
	for i := range kinds {
		k := &kinds[i]
		k.name, k.want = "tc/"+k.name, map[uint32]uint32{rig.XDPPass: uint32(0xffffffff), rig.XDPDrop: rig.TCDrop}[k.want]
	}
	return kinds
}

func one(line string) func(*guard) []string { return func(*guard) []string { return []string{line} } }

// means is the number of sources of a mean. The tables of lists have random keys, so finding an address can take one step more or less. The mean of
// this number changes by less than one instruction.
const means = 4096

// flood returns packets of sources, all of which must be dropped.
func flood(name string, of func(*guard) []netip.Addr) kind {
	return kind{name: name, want: rig.XDPDrop, lines: func(g *guard) (lines []string) {
		sources := of(g)
		for _, from := range sources[:min(len(sources), means)] {
			lines = append(lines, rig.FloodPacket(from))
		}
		return lines
	}}
}

// forged returns a flood from random sources and ports. Some hit an entry of a table that another address or port uses, and therefore cost more.
func forged(name string) kind {
	return kind{name: name, want: rig.XDPDrop, lines: func(*guard) (lines []string) {
		r := rand.New(rand.NewPCG(rig.Seed, 0))
		for _, from := range rig.RandomHosts(means).Listed {
			lines = append(lines, fmt.Sprintf("udp %s:%d > %s:%d len=46", from, r.Uint32N(1<<16), rig.Server4, rig.SinkPort))
		}
		return lines
	}}
}

// handshake returns the ACK that proves the address of the SYN's sender: it acknowledges the answer.
func handshake(answer []byte) string {
	number := binary.BigEndian.Uint32(packet.Decode(answer).L4[4:])
	return fmt.Sprintf("tcp 9.9.9.9:40000 > 10.0.0.2:80 . seq=1001 ack=%d", number+1)
}

// measure counts the instructions of packets of the kind. It stops the clock of the machine, because packets of a flood arrive without pauses.
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
			return mean, fmt.Errorf("packet %q: action %d, want %d", line, int32(r.Action), int32(k.want))
		}
		sum = sum.Plus(r.Counts)
	}
	return sum.Over(len(lines)), nil
}

// prepare sends the packets that arrive before.
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

// run runs a packet in a machine.
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
