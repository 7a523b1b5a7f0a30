// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// AttackRate is the packet rate of an attack, in packets per second, unless its model has another one.
const AttackRate = 30_000

// attackTime is the length of an attack with a constant rate.
const attackTime = 20 * time.Second

// maker makes a function that fills in packets of an attack.
type maker func(r *rand.Rand) func(p *Packet, t time.Duration)

// attack returns a model of one kind of packets.
func attack(name, label string, rate func(time.Duration) float64, lasts time.Duration, make maker) *Model {
	return &Model{Name: name, Label: label, Lasts: lasts, Streams: []Stream{{Rate: rate, New: make}}}
}

// forged returns a random source address for attacks.
func forged(r *rand.Rand) netip.Addr { return within(r, attackers) }

// syns returns SYNs from forged addresses to the web server, like the SYNs of a bot: with the options of a real stack, and all from one system.
func syns(r *rand.Rand) func(*Packet, time.Duration) {
	options := []byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 3, 6}
	return func(p *Packet, _ time.Duration) {
		*p = Packet{
			From: forged(r), To: Host, Proto: lab.TCP, SPort: uint16(1024 + r.IntN(64000)), DPort: HTTP, TTL: uint8(64 - 5 - r.IntN(16)),
			ID: uint16(1 + r.IntN(65535)), Flags: lab.SYN, Seq: r.Uint32(), Window: 29200, Options: options,
		}
		binary.BigEndian.PutUint32(options[8:], r.Uint32()) // the sender's clock
	}
}

// acks returns bare ACKs from forged addresses to the web server.
func acks(r *rand.Rand) func(*Packet, time.Duration) {
	return func(p *Packet, _ time.Duration) {
		*p = Packet{
			From: forged(r), To: Host, Proto: lab.TCP, SPort: uint16(1024 + r.IntN(64000)), DPort: HTTPS, TTL: uint8(64 - 5 - r.IntN(16)),
			ID: uint16(1 + r.IntN(65535)), Flags: lab.ACK, Seq: r.Uint32(), Ack: r.Uint32(), Window: uint16(r.Uint32()),
		}
	}
}

// answers returns reflected packets: the attacker has sent queries to servers with the host's address as the source. The answers come from one port
// and some thousand servers. They have one of some lengths, and begin like an answer of the protocol.
func answers(servers int, sport, dport uint16, lengths []int, begin func(r *rand.Rand, b []byte)) maker {
	return func(r *rand.Rand) func(*Packet, time.Duration) {
		list := clients(r, servers, attackers)
		return func(p *Packet, _ time.Duration) {
			c := &list[r.IntN(len(list))]
			to := dport
			if to == 0 {
				to = uint16(1024 + r.IntN(64000))
			}
			b := p.udp(c, to, lengths[r.IntN(len(lengths))])
			p.SPort, p.ID = sport, uint16(1+r.IntN(65535))
			Random(r, b)
			begin(r, b)
		}
	}
}

// starts returns a function that makes a payload start with the same bytes.
func starts(with string) func(*rand.Rand, []byte) {
	return func(_ *rand.Rand, b []byte) { copy(b, with) }
}

// The answers of amplifiers: of NTP to monlist (CVE-2013-5211), of CLDAP to a search (RFC 4511, 4.5.2), of BACnet to ReadProperty (ASHRAE 135, annex
// J), and of DNS to ANY (RFC 1035).
var (
	ntp    = answers(4000, 123, Game, []int{440, 440, 440, 440, 440, 440, 440, 80, 224}, starts("\xd7\x00\x03\x2a\x00\x06\x00\x48"))
	cldap  = answers(2500, 389, 0, []int{1434, 1472, 1472, 1390}, starts("\x30\x84\x00\x00\x05\x8e\x02\x01\x07\x64\x84\x00\x00\x05\x85\x04\x00\x30\x84"))
	bacnet = answers(1500, 47808, 0, []int{48, 52, 61, 70, 88}, starts("\x81\x0a\x00\x34\x01\x00\x30\x01\x0c\x0c\x02"))
	dnsAny = answers(6000, 53, 0, []int{1180, 1232, 1404, 1450, 1472}, func(r *rand.Rand, b []byte) {
		binary.BigEndian.PutUint16(b, uint16(r.Uint32()))
		copy(b[2:], "\x81\x80\x00\x01\x00\x14\x00\x00\x00\x01\x04evil\x07example\x00\x00\xff\x00\x01\xc0\x0c\x00\x10\x00\x01")
	})
)

// carpet returns datagrams from forged addresses to all addresses of the host.
func carpet(r *rand.Rand) func(*Packet, time.Duration) {
	hosts := []netip.Addr{}
	for a := HostNetwork.Addr(); HostNetwork.Contains(a); a = a.Next() {
		hosts = append(hosts, a)
	}
	return func(p *Packet, _ time.Duration) {
		c := client{addr: forged(r), port: uint16(1024 + r.IntN(64000)), ttl: someTTL(r)}
		b := p.udp(&c, uint16(1024+r.IntN(64000)), 512)
		p.To = hosts[r.IntN(len(hosts))]
		clear(b)
	}
}

// anything returns datagrams to the game with only random content.
func anything(r *rand.Rand) func(*Packet, time.Duration) {
	return func(p *Packet, _ time.Duration) {
		c := client{addr: forged(r), port: uint16(1 + r.IntN(65535)), ttl: uint8(30 + r.IntN(220))}
		Random(r, p.udp(&c, Game, r.IntN(1400)))
		p.ID = uint16(r.Uint32())
	}
}

// mimic returns datagrams like those of players, from forged addresses.
func mimic(r *rand.Rand) func(*Packet, time.Duration) {
	return func(p *Packet, _ time.Duration) {
		gameShape(r, p, &client{addr: forged(r), port: uint16(1024 + r.IntN(64000)), ttl: someTTL(r), id: r.Uint32(), n: r.Uint32N(40_000)})
	}
}

// few returns datagrams of one kind to the small service.
func few(r *rand.Rand) func(*Packet, time.Duration) {
	return func(p *Packet, _ time.Duration) {
		c := client{addr: forged(r), port: uint16(1024 + r.IntN(64000)), ttl: someTTL(r)}
		b := p.udp(&c, Small, 64)
		Random(r, b)
		copy(b, "\x00\x01\x00\x00")
	}
}

// SmallTimes is the multiple of the usual mix during the attack on the small service. The attack is only a small share of all packets.
const SmallTimes = 3.15

// turns returns one kind of packets after the other.
func turns(each time.Duration, kinds ...maker) []Stream {
	var list []Stream
	for i, k := range kinds {
		list = append(list, Stream{New: k, Rate: func(t time.Duration) float64 {
			if int(t/each)%len(kinds) == i {
				return AttackRate
			}
			return 0
		}})
	}
	return list
}

// pulses returns a rate that is on for a time and off for a time, repeatedly.
func pulses(on, off time.Duration, rate float64) func(time.Duration) float64 {
	return func(t time.Duration) float64 {
		if t%(on+off) < on {
			return rate
		}
		return 0
	}
}

// ramp returns a rate that grows linearly to its final value.
func ramp(to float64, in time.Duration) func(time.Duration) float64 {
	return func(t time.Duration) float64 { return to * min(1, t.Seconds()/in.Seconds()) }
}

// Attacks returns all synthetic attacks.
func Attacks() []*Model {
	all := steady(AttackRate)
	return []*Model{
		attack("syn", "SYNs from forged sources", all, attackTime, syns),
		attack("ack", "ACKs from forged sources", all, attackTime, acks),
		attack("ntp", "answers of NTP servers", all, attackTime, ntp),
		attack("dns", "answers of DNS servers", all, attackTime, dnsAny),
		attack("cldap", "answers of CLDAP servers", all, attackTime, cldap),
		attack("bacnet", "answers of BACnet devices", all, attackTime, bacnet),
		attack("carpet", "datagrams to all 8 addresses of the host", all, attackTime, carpet),
		{
			Name: "turns", Label: "another kind each 5 s: NTP, DNS, CLDAP, SYN, ACK", Lasts: 50 * time.Second,
			Streams: turns(5*time.Second, ntp, dnsAny, cldap, syns, acks),
		},
		attack("pulses", "NTP, 5 s on and 20 s off", pulses(5*time.Second, 20*time.Second, AttackRate), 55*time.Second, ntp),
		attack("ramp", "DNS, from nothing to all in 60 s", ramp(AttackRate, 60*time.Second), 60*time.Second, dnsAny),
		attack("random", "all random at the game", all, attackTime, anything),
		attack("mimic", "what players send, from forged sources", all, attackTime, mimic),
		attack("small", "2,000/s at a small service, beside 4,700/s", steady(2000), attackTime, few),
	}
}
