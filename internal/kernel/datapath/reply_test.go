// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/miekg/dns"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

const (
	xdpTX    = 3
	truncate = 3 // the verdict
)

// truncating returns an image that answers all packets as if they were DNS queries.
func truncating() *image.Image {
	im := always(image.SlotRules, truncate)
	im.Constants["answers"] = true
	return reachedBy(im, serverMAC)
}

// reachedBy changes an image so that its host has the given Ethernet addresses. It answers no packets to other addresses.
func reachedBy(im *image.Image, macs ...net.HardwareAddr) *image.Image {
	fill := im.Fill
	if im.Shapes == nil {
		im.Shapes = map[string]image.Shape{}
	}
	im.Shapes[image.HostEnds] = image.Shape{ValueSize: image.HostEndsSize, Entries: 1}
	im.Fill = func(memory map[string][]byte) error {
		image.Ends{MACs: macs}.Write(memory[image.HostEnds])
		if fill == nil {
			return nil
		}
		return fill(memory)
	}
	return im
}

// through runs a program on a frame. It returns the XDP action and the resulting frame.
func through(t testing.TB, p *datapath.Program, frame []byte) (action uint32, out []byte) {
	t.Helper()
	options := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Repeat: 1}
	action, err := p.Native().Run(&options)
	if err != nil {
		t.Fatal(err)
	}
	return action, options.DataOut
}

// query is a DNS query in a frame.
type query struct {
	v6    bool
	vlans []uint16
	msg   *dns.Msg
	junk  []byte // after the message, in the datagram
	pad   int    // after the packet, in the frame
	plain bool   // without a UDP checksum
	edit  func(*layers.IPv4)
}

var (
	clientMAC, serverMAC = net.HardwareAddr{2, 0, 0, 0, 0, 7}, net.HardwareAddr{2, 0, 0, 0, 0, 1}
	client4, server4     = net.IP{198, 51, 100, 7}, net.IP{192, 0, 2, 1}
	client6, server6     = net.ParseIP("2001:db8::7"), net.ParseIP("2001:db8:1::1")
)

func (q query) message(t testing.TB) []byte {
	t.Helper()
	wire, err := q.msg.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return append(wire, q.junk...)
}

func (q query) frame(t testing.TB) []byte {
	t.Helper()
	var list []gopacket.SerializableLayer
	last, network := layers.EthernetTypeIPv4, gopacket.NetworkLayer(nil)
	ip4 := &layers.IPv4{Version: 4, TTL: 57, TOS: 0x23, Id: 77, Protocol: layers.IPProtocolUDP, SrcIP: client4, DstIP: server4}
	ip6 := &layers.IPv6{Version: 6, HopLimit: 57, TrafficClass: 0x23, FlowLabel: 0xabcde, NextHeader: layers.IPProtocolUDP,
		SrcIP: client6, DstIP: server6}
	if q.edit != nil {
		q.edit(ip4)
	}
	if network = ip4; q.v6 {
		last, network = layers.EthernetTypeIPv6, ip6
	}
	types := []layers.EthernetType{}
	for range q.vlans {
		types = append(types, layers.EthernetTypeDot1Q)
	}
	types = append(types, last)
	list = append(list, &layers.Ethernet{SrcMAC: clientMAC, DstMAC: serverMAC, EthernetType: types[0]})
	for i, id := range q.vlans {
		list = append(list, &layers.Dot1Q{VLANIdentifier: id, Priority: 5, Type: types[i+1]})
	}
	udp := &layers.UDP{SrcPort: 4321, DstPort: 53}
	udp.SetNetworkLayerForChecksum(network)
	list = append(list, network.(gopacket.SerializableLayer), udp, gopacket.Payload(q.message(t)))
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, list...); err != nil {
		t.Fatal(err)
	}
	f := append(bytes.Clone(b.Bytes()), bytes.Repeat([]byte{0xaa}, q.pad)...)
	if q.plain {
		at := bytes.Index(f, q.message(t)) - 2
		f[at], f[at+1] = 0, 0
	}
	return f
}

// ask returns a query.
func ask(name string, kind uint16, edit ...func(*dns.Msg)) *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(name, kind)
	m.Id = 0x1234
	for _, e := range edit {
		e(m)
	}
	return m
}

func edns(do bool, options ...dns.EDNS0) func(*dns.Msg) {
	return func(m *dns.Msg) {
		m.SetEdns0(4096, do)
		m.IsEdns0().Option = options
	}
}

// flagged sets the bits that an answer must copy from the query, and the bits that it must not copy.
func flagged(m *dns.Msg) {
	m.RecursionDesired, m.CheckingDisabled = true, true
	m.AuthenticatedData, m.Authoritative, m.RecursionAvailable, m.Zero = true, true, true, true
}

var cookie = &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0011223344556677"}

func queries() map[string]*dns.Msg {
	long := strings.Repeat(strings.Repeat("x", 62)+".", 3) + strings.Repeat("y", 61) + "."
	return map[string]*dns.Msg{
		"plain":      ask("www.example.", dns.TypeA),
		"odd":        ask("ww.example.", dns.TypeA),
		"root":       ask(".", dns.TypeNS),
		"random":     ask("wWw.eXaMpLe.", dns.TypeANY),
		"not IN":     ask("version.bind.", dns.TypeTXT, func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }),
		"bytes":      ask(`a\000\255\.b.example.`, dns.TypeA),
		"longest":    ask(long, dns.TypeA, edns(true)),
		"labels":     ask(strings.Repeat("a.", 127), dns.TypeA, edns(false)),
		"no RD":      ask("www.example.", dns.TypeA, func(m *dns.Msg) { m.RecursionDesired = false }),
		"flags":      ask("www.example.", dns.TypeA, flagged),
		"EDNS":       ask("www.example.", dns.TypeANY, edns(false)),
		"DO":         ask("www.example.", dns.TypeANY, edns(true)),
		"odd, DO":    ask("ww.example.", dns.TypeANY, edns(true)),
		"cookie":     ask("www.example.", dns.TypeANY, edns(false, cookie)),
		"DO, cookie": ask("www.example.", dns.TypeANY, edns(true, cookie), flagged),
		"EDNS 1": ask("www.example.", dns.TypeA, edns(true), func(m *dns.Msg) {
			m.IsEdns0().SetVersion(1)
			m.Rcode = 0x0ff0 // the upper byte goes into the OPT
			m.IsEdns0().SetZ(0x3fff)
		}),
		"not OPT": ask("www.example.", dns.TypeA, func(m *dns.Msg) {
			m.Extra = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeA, Class: dns.ClassINET}, A: server4}}
		}),
	}
}

// TestReplies answers queries of all forms on all kinds of frames.
func TestReplies(t *testing.T) {
	p := load(t, truncating())
	for name, msg := range queries() {
		for _, v6 := range []bool{false, true} {
			for _, vlans := range [][]uint16{nil, {7}, {7, 4094}} {
				for _, plain := range []bool{false, true} {
					if plain && v6 {
						continue // TestNoReply has these
					}
					q := query{v6: v6, vlans: vlans, msg: msg, pad: len(name), plain: plain}
					t.Run(fmt.Sprintf("%s, v6=%v, vlans=%d, plain=%v", name, v6, len(vlans), plain), func(t *testing.T) { q.answered(t, p) })
				}
			}
		}
	}
}

// answered checks that a query is answered, and that the answer is right.
func (q query) answered(t *testing.T, p *datapath.Program) {
	t.Helper()
	sent := q.frame(t)
	action, got := through(t, p, sent)
	if action != xdpTX {
		t.Fatalf("action %d, want XDP_TX", action)
	}
	if len(got) > len(sent)-q.pad {
		t.Errorf("an answer of %d bytes to a query of %d", len(got), len(sent)-q.pad)
	}
	message := query{msg: wanted(q.msg)}.message(t)
	at := bytes.Index(sent, q.message(t))
	if len(got) < at || !bytes.Equal(got[at:], message) {
		t.Fatalf("message:\n%x, want at %d\n%x", got, at, message)
	}
	headers(t, decode(t, got), decode(t, sent))
}

// wanted returns the expected answer to a query.
func wanted(q *dns.Msg) *dns.Msg {
	m := &dns.Msg{Question: q.Question}
	m.Id, m.Response, m.Truncated, m.RecursionAvailable = q.Id, true, true, true
	m.RecursionDesired, m.CheckingDisabled = q.RecursionDesired, q.CheckingDisabled
	if opt := q.IsEdns0(); opt != nil {
		m.SetEdns0(1232, opt.Do())
	}
	return m
}

func decode(t testing.TB, frame []byte) gopacket.Packet {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("%x: %v", frame, e.Error())
	}
	return p
}

// headers checks that a packet has the addresses of an answer to another packet, and that its headers are correct.
func headers(t *testing.T, got, sent gopacket.Packet) {
	t.Helper()
	udp := got.TransportLayer().(*layers.UDP)
	udp.SetNetworkLayerForChecksum(got.NetworkLayer())
	wrong, mismatches := got.VerifyChecksums()
	mismatches = slices.DeleteFunc(mismatches, func(m gopacket.ChecksumMismatch) bool {
		return m.Correct == 0 && m.Actual == 0xffff // by RFC 768, which gopacket does not implement
	})
	if wrong != nil || len(mismatches) > 0 {
		t.Errorf("checksums: %v %v", wrong, mismatches)
	}
	for i, flows := range [][2]gopacket.Flow{
		{got.LinkLayer().LinkFlow(), sent.LinkLayer().LinkFlow().Reverse()},
		{got.NetworkLayer().NetworkFlow(), sent.NetworkLayer().NetworkFlow().Reverse()},
		{got.TransportLayer().TransportFlow(), sent.TransportLayer().TransportFlow().Reverse()},
	} {
		if flows[0] != flows[1] {
			t.Errorf("layer %d: %v, want %v", i+2, flows[0], flows[1])
		}
	}
	if udp.Checksum == 0 || int(udp.Length) != 8+len(udp.Payload) {
		t.Errorf("UDP checksum %d, length %d of %d", udp.Checksum, udp.Length, 8+len(udp.Payload))
	}
	switch ip := got.NetworkLayer().(type) {
	case *layers.IPv4:
		if ip.TTL != 64 || ip.Id != 0 || ip.Flags != layers.IPv4DontFragment || ip.FragOffset != 0 || ip.TOS != 0 ||
			ip.Length != 20+udp.Length {
			t.Errorf("IPv4 header %+v", ip)
		}
	case *layers.IPv6:
		if ip.HopLimit != 64 || ip.Length != udp.Length || ip.TrafficClass != 0 || ip.FlowLabel != 0 {
			t.Errorf("IPv6 header %+v", ip)
		}
	}
	for i, l := range got.Layers() {
		if tag, ok := l.(*layers.Dot1Q); ok && !bytes.Equal(tag.Contents, sent.Layers()[i].LayerContents()) {
			t.Errorf("VLAN tag %x, want %x", tag.Contents, sent.Layers()[i].LayerContents())
		}
	}
}

// TestReplyOfZeroSum sends a query whose answer has the checksum 0. In UDP this is sent as 0xffff, because 0 means that there is no checksum.
func TestReplyOfZeroSum(t *testing.T) {
	p := load(t, truncating())
	for _, v6 := range []bool{false, true} {
		q := query{v6: v6, msg: ask("www.example.", dns.TypeA, func(m *dns.Msg) { m.Id = 0 })}
		_, reply := through(t, p, q.frame(t))
		sum := func(frame []byte) uint16 { return decode(t, frame).TransportLayer().(*layers.UDP).Checksum }
		q.msg.Id = sum(reply) // the complement of the other data; with this ID the sum is 0
		_, reply = through(t, p, q.frame(t))
		if got := sum(reply); got != 0xffff {
			t.Errorf("v6=%v: checksum %#x, want 0xffff", v6, got)
		}
		q.answered(t, p)
	}
}

// TestReplyToRandom answers queries for random names of all lengths, in upper and lower case and with all bytes.
func TestReplyToRandom(t *testing.T) {
	p, r := load(t, truncating()), testutil.Random(t)
	for range 3000 {
		var name strings.Builder
		for left := r.IntN(254); left > 1; {
			label := 1 + r.IntN(min(left-1, 63))
			for range label {
				fmt.Fprintf(&name, "\\%03d", r.IntN(256))
			}
			name.WriteByte('.')
			left -= 1 + label
		}
		if name.Len() == 0 {
			name.WriteByte('.')
		}
		m := ask(name.String(), uint16(r.Uint32()), func(m *dns.Msg) { m.Id = uint16(r.Uint32()) })
		if r.IntN(2) == 0 {
			edns(r.IntN(2) == 0, &dns.EDNS0_PADDING{Padding: make([]byte, r.IntN(300))})(m)
		}
		query{v6: r.IntN(2) == 0, vlans: make([]uint16, r.IntN(3)), msg: m, pad: r.IntN(9)}.answered(t, p)
	}
}

// TestNoReply sends packets that must be dropped and not answered, although the rule answers. The rule must still count them.
func TestNoReply(t *testing.T) {
	p := load(t, truncating())
	ok := query{msg: ask("www.example.", dns.TypeA, edns(true))}
	ok6 := query{v6: true, msg: ok.msg}
	edited := func(q query, edit func(b []byte)) []byte {
		b := q.frame(t)
		edit(b)
		return b
	}
	options := query{msg: ok.msg, edit: func(ip *layers.IPv4) {
		ip.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
	}}
	extended := slices.Concat(ok6.frame(t)[:14+40], []byte{17, 0, 1, 4, 0, 0, 0, 0}, ok6.frame(t)[14+40:])
	extended[14+6], extended[14+5] = 60, extended[14+5]+8 // destination options
	large := query{msg: ask("www.example.", dns.TypeA, edns(true, &dns.EDNS0_PADDING{Padding: make([]byte, 6000)}))}
	for name, b := range map[string][]byte{
		"IPv4 options":                   options.frame(t),
		"extension headers":              extended,
		"IPv6, no checksum":              query{v6: true, msg: ok.msg, plain: true}.frame(t),
		"to a group":                     edited(ok, func(b []byte) { b[0] |= 1 }),
		"from port 0":                    edited(ok, func(b []byte) { b[14+20], b[14+21] = 0, 0 }),
		"in several pieces":              large.frame(t),
		"without an IP":                  make([]byte, 60),
		"a question cut off":             edited(ok, func(b []byte) { b[14+2], b[14+3] = 0, 20+8+12+9 }),
		"no question at all":             edited(ok, func(b []byte) { b[14+2], b[14+3] = 0, 20+8+12 }),
		"not even a header":              edited(ok, func(b []byte) { b[14+2], b[14+3] = 0, 20+8 }),
		"a compressed name":              edited(ok, func(b []byte) { b[14+20+8+12] = 0xc0 }),
		"a name without end":             edited(query{msg: ask(strings.Repeat("a.", 127), dns.TypeA)}, func(b []byte) { b[len(b)-5] = 1 }),
		"three VLAN tags":                query{vlans: []uint16{1, 2, 3}, msg: ok.msg}.frame(t),
		"a later fragment":               edited(ok, func(b []byte) { b[14+7] = 9 }),
		"a header of 8 words":            edited(ok, func(b []byte) { b[14] = 0x48 }),
		"a multicast group":              edited(ok, func(b []byte) { copy(b[14+16:], []byte{224, 0, 0, 251}) }),
		"the last such group":            edited(ok, func(b []byte) { copy(b[14+16:], []byte{239, 255, 255, 255}) }),
		"an address for some future use": edited(ok, func(b []byte) { copy(b[14+16:], []byte{240, 0, 0, 1}) }),
		"broadcast":                      edited(ok, func(b []byte) { copy(b[14+16:], []byte{255, 255, 255, 255}) }),
		"network 0":                      edited(ok, func(b []byte) { copy(b[14+16:], []byte{0, 1, 2, 3}) }),
		"loopback":                       edited(ok, func(b []byte) { copy(b[14+16:], []byte{127, 1, 2, 3}) }),
		"a group of IPv6":                edited(ok6, func(b []byte) { b[14+24], b[14+25] = 0xff, 0x0e }),
	} {
		before := counters(t, p)
		if action, _ := through(t, p, b); action == xdpTX {
			t.Errorf("%s: answered", name)
		}
		if after := counters(t, p); after[image.SlotReplies] != before[image.SlotReplies] {
			t.Errorf("%s: counted as answered", name)
		}
	}
	for _, b := range [][]byte{options.frame(t), extended, large.frame(t)} {
		before := counters(t, p)[image.SlotRules].Packets
		if action, _ := through(t, p, b); action != xdpDrop || counters(t, p)[image.SlotRules].Packets != before+1 {
			t.Errorf("XDP action %d, counters %v", action, counters(t, p))
		}
	}
}

// TestReplyShortens sends queries with random bytes after the headers. No answer may be longer than its query.
func TestReplyShortens(t *testing.T) {
	p, r := load(t, truncating()), testutil.Random(t)
	b := query{msg: ask("www.example.", dns.TypeA, edns(true, cookie))}.frame(t)
	answered := 0
	for range 20_000 {
		changed := bytes.Clone(b)
		for range 1 + r.IntN(4) {
			changed[14+20+8+4+r.IntN(len(b)-14-20-8-4)] = byte(r.Uint32())
		}
		if action, out := through(t, p, changed); action == xdpTX {
			answered++
			if len(out) > len(b) {
				t.Fatalf("%d bytes to %d", len(out), len(b))
			}
		}
	}
	if answered < 1000 || answered > 19_900 {
		t.Errorf("%d of 20,000 answered", answered)
	}
}
