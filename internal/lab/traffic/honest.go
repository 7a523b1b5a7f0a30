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

// client is somebody with an address, a port, and a distance from the host.
type client struct {
	addr netip.Addr
	port uint16
	ttl  uint8
	id   uint32 // that it has at the service
	n    uint32 // packets so far
}

// someTTL draws the TTL of a packet that has come some hops from a system of one of the usual kinds.
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

// clients draws some of a network.
func clients(r *rand.Rand, n int, of netip.Prefix) (list []client) {
	for range n {
		list = append(list, client{addr: within(r, of), port: uint16(1024 + r.IntN(64000)), ttl: someTTL(r), id: r.Uint32()})
	}
	return list
}

// shape fills in what a client sends to a service.
type shape func(r *rand.Rand, p *Packet, c *client)

// udp fills in what all packets of a client over UDP have, and space for its payload.
func (p *Packet) udp(c *client, port uint16, length int) []byte {
	p.Proto, p.From, p.To, p.TTL, p.ID, p.SPort, p.DPort = lab.UDP, c.addr, Host, c.ttl, 0, c.port, port
	return p.space(length)
}

// space is a payload of so many bytes.
func (p *Packet) space(length int) []byte {
	if cap(p.Payload) < length {
		p.Payload = make([]byte, 0, 2048)
	}
	p.Payload = p.Payload[:length]
	return p.Payload
}

// Random fills bytes with random ones.
func Random(r *rand.Rand, b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		binary.NativeEndian.PutUint64(b, r.Uint64())
	}
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// gameShape is what a player sends: what the connection is, a number, and what the player does.
func gameShape(r *rand.Rand, p *Packet, c *client) {
	b := p.udp(c, Game, 28+r.IntN(64))
	binary.BigEndian.PutUint32(b, c.id)
	binary.BigEndian.PutUint32(b[4:], c.n)
	Random(r, b[8:])
}

// voiceShape is RTP (RFC 3550, 5.1) with 20 ms of Opus. Numbers and times begin anywhere.
func voiceShape(r *rand.Rand, p *Packet, c *client) {
	b := p.udp(c, Voice, 12+50+r.IntN(60))
	b[0], b[1] = 0x80, 0x78
	binary.BigEndian.PutUint16(b[2:], uint16(c.n+c.id))
	binary.BigEndian.PutUint32(b[4:], 960*c.n+bits.Reverse32(c.id))
	binary.BigEndian.PutUint32(b[8:], c.id)
	Random(r, b[12:])
}

// smallShape is what devices report.
func smallShape(r *rand.Rand, p *Packet, c *client) {
	b := p.udp(c, Small, 24)
	copy(b, "RPT1")
	binary.BigEndian.PutUint32(b[4:], c.id)
	binary.BigEndian.PutUint32(b[8:], c.n)
	Random(r, b[12:])
}

// dnsNames are asked for.
var dnsNames = []string{"www", "mail", "api", "cdn", "img", "static", "ns1", "shop", "blog", "login"}

// dnsShape is a query (RFC 1035, 4.1) from a new port each.
func dnsShape(r *rand.Rand, p *Packet, c *client) {
	name := dnsNames[r.IntN(len(dnsNames))]
	c.port = uint16(1024 + r.IntN(64000))
	b := p.udp(c, DNS, 12)
	binary.BigEndian.PutUint16(b, uint16(r.Uint32()))
	copy(b[2:], "\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00") // recursion desired, a question
	b = append(append(append(b, byte(len(name))), name...), "\x07example\x03net\x00\x00"...)
	p.Payload = append(b, []byte{1, 28, 15}[r.IntN(3)], 0, 1) // A, AAAA or MX
}

// talk is clients of a network that send to a service, each as often as another.
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

// usualRates are packets a second of the usual mix over UDP. TCP of it is left to real sockets: see the package.
const (
	dnsRate, gameRate, voiceRate, smallRate = 150, 600, 250, 200
	usualUDP                                = dnsRate + gameRate + voiceRate + smallRate
)

// Usual is the usual mix over UDP, so many times.
func Usual(times func(time.Duration) float64) *Model {
	rate := func(of float64) func(time.Duration) float64 {
		return func(t time.Duration) float64 { return of * times(t) }
	}
	return &Model{Name: "usual", Label: "the usual mix", Honest: true, Streams: []Stream{
		talk(usual[3], 120, rate(dnsRate), dnsShape), talk(usual[4], 30, rate(gameRate), gameShape),
		talk(usual[5], 10, rate(voiceRate), voiceShape), talk(usual[6], 40, rate(smallRate), smallShape),
	}}
}

// Once is the usual mix as it usually is.
func Once(time.Duration) float64 { return 1 }

// UsualClasses are those of the usual mix, over UDP and TCP.
func UsualClasses() []Class { return usual }

// The rates of a crowd.
const crowdGame, crowdDNS = 15_000, 1000

// Crowd is 250 new clients of one network at the game and DNS.
func Crowd() *Model {
	return &Model{Name: "crowd", Label: "250 new clients of one /24 at the game and DNS", Honest: true, Lasts: 20 * time.Second, Streams: []Stream{
		talk(Class{"crowd game", crowdClients, lab.UDP, Game}, 250, steady(crowdGame), gameShape),
		talk(Class{"crowd dns", crowdClients, lab.UDP, DNS}, 250, steady(crowdDNS), dnsShape),
	}}
}

// World is new clients of a quarter of the Internet, all as far from the host, at the game and DNS.
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

// Scan is a host that asks all ports whether they are open.
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

// NAT is a thousand clients behind one address.
func NAT() *Model {
	from := single(nat)
	return &Model{Name: "nat", Label: "a NAT of 1,000 clients behind one address", Honest: true, Lasts: 20 * time.Second, Streams: []Stream{
		talk(Class{"nat game", from, lab.UDP, Game}, 700, steady(7000), gameShape), talk(Class{"nat voice", from, lab.UDP, Voice}, 200, steady(2000), voiceShape),
		talk(Class{"nat dns", from, lab.UDP, DNS}, 100, steady(500), dnsShape),
	}}
}

// Hour is voice streams that begin at the hour.
func Hour() *Model {
	return &Model{Name: "hour", Label: "120 voice streams of one /16 that begin at the hour", Honest: true, Lasts: 20 * time.Second, Streams: []Stream{
		talk(Class{"hour voice", voiceClients, lab.UDP, Voice}, 120, steady(6000), voiceShape),
	}}
}

// Doubling is how often the usual mix comes that doubles every 20 s.
func Doubling(t time.Duration) float64 { return min(8, math.Exp2(t.Seconds()/20)) }

// Polls is a monitoring system that asks all services over UDP, as well as those over TCP, again and again.
func Polls() *Model {
	from := single(Monitor)
	return &Model{Name: "monitor", Label: "a monitoring system that polls all services", Honest: true, Lasts: 20 * time.Second, Streams: []Stream{
		talk(Class{"monitor game", from, lab.UDP, Game}, 1, steady(1000), gameShape), talk(Class{"monitor voice", from, lab.UDP, Voice}, 1, steady(1000), voiceShape),
		talk(Class{"monitor dns", from, lab.UDP, DNS}, 1, steady(1000), dnsShape), talk(Class{"monitor small", from, lab.UDP, Small}, 1, steady(1000), smallShape),
	}}
}

// IsGame reports whether a datagram is what players send: one with a number that a player gets to.
func IsGame(b []byte) bool { return len(b) >= 28 && binary.BigEndian.Uint32(b[4:]) < 50_000 }

// IsVoice reports whether a datagram is one of the streams.
func IsVoice(b []byte) bool { return len(b) >= 12 && b[0] == 0x80 && b[1] == 0x78 }

// IsSmall reports whether a datagram is a report.
func IsSmall(b []byte) bool { return len(b) == 24 && string(b[:4]) == "RPT1" }

// IsQuery reports whether a datagram is a DNS query.
func IsQuery(b []byte) bool {
	return len(b) > 16 && b[2]&0xf8 == 0 && binary.BigEndian.Uint32(b[4:]) == 1<<16
}
