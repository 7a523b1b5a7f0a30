// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// client is a client with an address, a port, and a distance from the host.
type client struct {
	addr netip.Addr
	port uint16
	ttl  uint8
	id   uint32 // the client's identifier at the service
	n    uint32 // packets so far
}

// someTTL draws the TTL of a packet from a usual system, after some hops.
func someTTL(r *rand.Rand) uint8 {
	begins := []int{64, 64, 128, 128, 128, 255}[r.IntN(6)]
	return uint8(begins - 5 - r.IntN(16))
}

// within draws an address of a network, not its first or last.
func within(r *rand.Rand, p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	host := uint32(1)<<(32-p.Bits()) - 1
	n := binary.BigEndian.Uint32(a[:])
	if host > 0 {
		n |= 1 + r.Uint32N(max(1, host-1))
	}
	binary.BigEndian.PutUint32(a[:], n)
	return netip.AddrFrom4(a)
}

// clients draws n clients of a network.
func clients(r *rand.Rand, n int, of netip.Prefix) (list []client) {
	for range n {
		list = append(list, client{addr: within(r, of), port: uint16(1024 + r.IntN(64000)), ttl: someTTL(r), id: r.Uint32()})
	}
	return list
}

// shape fills in a packet of a client to a service.
type shape func(r *rand.Rand, p *Packet, c *client)

// udp fills in the common fields of a client's UDP packets, and returns space for the payload.
func (p *Packet) udp(c *client, port uint16, length int) []byte {
	p.Proto, p.From, p.To, p.TTL, p.ID, p.SPort, p.DPort = lab.UDP, c.addr, Host, c.ttl, 0, c.port, port
	return p.space(length)
}

// space returns a payload of length bytes.
func (p *Packet) space(length int) []byte {
	if cap(p.Payload) < length {
		p.Payload = make([]byte, 0, 2048)
	}
	p.Payload = p.Payload[:length]
	return p.Payload
}

// Random fills bytes with random values.
func Random(r *rand.Rand, b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		binary.NativeEndian.PutUint64(b, r.Uint64())
	}
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// gameShape makes a datagram of a player: an identifier of the connection, a number, and the player's action.
func gameShape(r *rand.Rand, p *Packet, c *client) {
	b := p.udp(c, Game, 28+r.IntN(64))
	binary.BigEndian.PutUint32(b, c.id)
	binary.BigEndian.PutUint32(b[4:], c.n)
	Random(r, b[8:])
}

// voiceShape makes RTP (RFC 3550, 5.1) with 20 ms of Opus. Sequence numbers and times start at random values.
func voiceShape(r *rand.Rand, p *Packet, c *client) {
	b := p.udp(c, Voice, 12+50+r.IntN(60))
	b[0], b[1] = 0x80, 0x78
	binary.BigEndian.PutUint16(b[2:], uint16(c.n+c.id))
	binary.BigEndian.PutUint32(b[4:], 960*c.n+bits.Reverse32(c.id))
	binary.BigEndian.PutUint32(b[8:], c.id)
	Random(r, b[12:])
}

// smallShape makes a report of a device.
func smallShape(r *rand.Rand, p *Packet, c *client) {
	b := p.udp(c, Small, 24)
	copy(b, "RPT1")
	binary.BigEndian.PutUint32(b[4:], c.id)
	binary.BigEndian.PutUint32(b[8:], c.n)
	Random(r, b[12:])
}

// dnsNames are the names in queries.
var dnsNames = []string{"www", "mail", "api", "cdn", "img", "static", "ns1", "shop", "blog", "login"}

// dnsShape makes a query (RFC 1035, 4.1). Each query comes from a new port.
func dnsShape(r *rand.Rand, p *Packet, c *client) {
	name := dnsNames[r.IntN(len(dnsNames))]
	c.port = uint16(1024 + r.IntN(64000))
	b := p.udp(c, DNS, 12)
	binary.BigEndian.PutUint16(b, uint16(r.Uint32()))
	copy(b[2:], "\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00") // recursion desired, one question
	b = append(append(append(b, byte(len(name))), name...), "\x07example\x03net\x00\x00"...)
	p.Payload = append(b, []byte{1, 28, 15}[r.IntN(3)], 0, 1) // A, AAAA or MX
}

// talk returns clients of a network that send to a service, all at the same rate.
func talk(class Class, n int, rate func(time.Duration) float64, make shape) Stream {
	return Stream{Class: class, Rate: rate, New: func(r *rand.Rand) func(*Packet, time.Duration) {
		list := clients(r, n, class.From)
		return func(p *Packet, _ time.Duration) {
			c := &list[r.IntN(len(list))]
			c.n++
			make(r, p, c)
		}
	}}
}

// newcomerEvery is a number of packets of the usual mix. On average one of them is the first packet of a new client, which replaces another one.
const newcomerEvery = 50

// come is like talk, but the clients come and go.
func come(class Class, n int, rate func(time.Duration) float64, make shape) Stream {
	return Stream{Class: class, Rate: rate, New: func(r *rand.Rand) func(*Packet, time.Duration) {
		list := clients(r, n, class.From)
		return func(p *Packet, _ time.Duration) {
			c := &list[r.IntN(len(list))]
			if r.IntN(newcomerEvery) == 0 {
				*c = clients(r, 1, class.From)[0]
			}
			c.n++
			make(r, p, c)
		}
	}}
}

// The packets per second of the usual mix over UDP. Real sockets make its TCP part: see the package.
const (
	dnsRate, gameRate, voiceRate, smallRate = 150, 600, 250, 200
	usualUDP                                = dnsRate + gameRate + voiceRate + smallRate
)

// Usual returns a multiple of the usual mix over UDP.
func Usual(times func(time.Duration) float64) *Model {
	rate := func(of float64) func(time.Duration) float64 {
		return func(t time.Duration) float64 { return of * times(t) }
	}
	return &Model{Name: "usual", Label: "the usual mix", Honest: true, Streams: []Stream{
		come(usual[3], 120, rate(dnsRate), dnsShape), come(usual[4], 30, rate(gameRate), gameShape),
		come(usual[5], 10, rate(voiceRate), voiceShape), come(usual[6], 40, rate(smallRate), smallShape),
	}}
}

// Once returns the usual mix at its usual rate.
func Once(time.Duration) float64 { return 1 }

// UsualClasses returns the classes of the usual mix, over UDP and TCP.
func UsualClasses() []Class { return usual }

// The rates of a crowd.
const crowdGame, crowdDNS = 15_000, 1000

// Crowd returns 250 new clients of one network that use the game and DNS.
func Crowd() *Model {
	return &Model{Name: "crowd", Label: "250 new clients of one /24 at the game and DNS", Honest: true, Lasts: 20 * time.Second, Streams: []Stream{
		talk(Class{"crowd game", crowdClients, lab.UDP, Game}, 250, steady(crowdGame), gameShape),
		talk(Class{"crowd dns", crowdClients, lab.UDP, DNS}, 250, steady(crowdDNS), dnsShape),
	}}
}

// World returns new clients from a quarter of the Internet, all at the same distance from the host, that use the game and DNS.
func World() *Model {
	far := func(make shape) shape {
		return func(r *rand.Rand, p *Packet, c *client) {
			c.ttl = 52
			make(r, p, c)
		}
	}
	return &Model{Name: "world", Label: "2,000 new clients of a quarter of the Internet with one TTL", Honest: true, Lasts: 20 * time.Second, Streams: []Stream{
		talk(Class{"world game", worldClients, lab.UDP, Game}, 2000, steady(crowdGame), far(gameShape)),
		talk(Class{"world dns", worldClients, lab.UDP, DNS}, 2000, steady(crowdDNS), far(dnsShape)),
	}}
}

// Scan returns the packets of a host that scans all ports.
func Scan() *Model {
	class := Class{"scan", single(scanner), lab.TCP, 0}
	return &Model{Name: "scan", Label: "a port scan of 5,000/s", Honest: true, Lasts: 20 * time.Second, Streams: []Stream{{
		Class: class, Rate: steady(5000), New: func(r *rand.Rand) func(*Packet, time.Duration) {
			sport := uint16(40_000 + r.IntN(20_000))
			return func(p *Packet, _ time.Duration) {
				*p = Packet{
					From: scanner, To: Host, Proto: lab.TCP, SPort: sport, DPort: uint16(1 + r.IntN(65535)), TTL: 47, ID: uint16(1 + r.IntN(65535)),
					Flags: lab.SYN, Seq: r.Uint32(), Window: 1024, Options: []byte{2, 4, 5, 180},
				}
			}
		},
	}}}
}

// NAT returns the packets of a thousand clients behind one address.
func NAT() *Model {
	from := single(nat)
	return &Model{Name: "nat", Label: "a NAT of 1,000 clients behind one address", Honest: true, Lasts: 20 * time.Second, Streams: []Stream{
		talk(Class{"nat game", from, lab.UDP, Game}, 700, steady(7000), gameShape), talk(Class{"nat voice", from, lab.UDP, Voice}, 200, steady(2000), voiceShape),
		talk(Class{"nat dns", from, lab.UDP, DNS}, 100, steady(500), dnsShape),
	}}
}

// Hour returns voice streams that start at the full hour.
func Hour() *Model {
	return &Model{Name: "hour", Label: "120 voice streams of one /16 that begin at the hour", Honest: true, Lasts: 20 * time.Second, Streams: []Stream{
		talk(Class{"hour voice", voiceClients, lab.UDP, Voice}, 120, steady(6000), voiceShape),
	}}
}

// Doubling returns the multiple of a usual mix that doubles every 20 s.
func Doubling(t time.Duration) float64 { return min(8, math.Exp2(t.Seconds()/20)) }

// Polls returns the packets of a monitoring system that polls all services over UDP and TCP, repeatedly.
func Polls() *Model {
	from := single(Monitor)
	return &Model{Name: "monitor", Label: "a monitoring system that polls all services", Honest: true, Lasts: 20 * time.Second, Streams: []Stream{
		talk(Class{"monitor game", from, lab.UDP, Game}, 1, steady(1000), gameShape), talk(Class{"monitor voice", from, lab.UDP, Voice}, 1, steady(1000), voiceShape),
		talk(Class{"monitor dns", from, lab.UDP, DNS}, 1, steady(1000), dnsShape), talk(Class{"monitor small", from, lab.UDP, Small}, 1, steady(1000), smallShape),
	}}
}

// IsGame reports whether a datagram is from a player: its number is one that players reach.
func IsGame(b []byte) bool { return len(b) >= 28 && binary.BigEndian.Uint32(b[4:]) < 50_000 }

// IsVoice reports whether a datagram belongs to a voice stream.
func IsVoice(b []byte) bool { return len(b) >= 12 && b[0] == 0x80 && b[1] == 0x78 }

// IsSmall reports whether a datagram is a report of a device.
func IsSmall(b []byte) bool { return len(b) == 24 && string(b[:4]) == "RPT1" }

// IsQuery reports whether a datagram is a DNS query.
func IsQuery(b []byte) bool {
	return len(b) > 16 && b[2]&0xf8 == 0 && binary.BigEndian.Uint32(b[4:]) == 1<<16
}
