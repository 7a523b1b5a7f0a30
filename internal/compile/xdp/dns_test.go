// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

func values(f packet.Field, first, last uint32) ir.Match {
	return ir.Match{Field: f, Values: []ir.Range{{First: first, Last: last}}}
}

// dnsPort returns the match for a policy's udp/N.
func dnsPort(n uint32) ir.Match { return values(packet.DPort, packet.PortUDP+n, packet.PortUDP+n) }

// dnsProgram returns a program with separate rules for classes of DNS messages, some types and some names.
func dnsProgram(ports ...ir.Match) *ir.Program {
	p := &ir.Program{Names: []ir.NameSet{
		{Names: []string{"evil.example", "a", "b.a", `x\046y.a`, `\000\255`, `\092\127.a`}},
		{Names: []string{"example", "deep." + strings.Repeat("a.", 14) + "a"}},
		{Names: []string{""}},
		{Names: []string{strings.Repeat("l", 63), "a.b.a"}},
	}}
	add := func(name string, r ir.Rule) {
		r.Name, r.Verdict = name, ir.Drop
		r.Match = append(r.Match, ports...)
		p.Rules = append(p.Rules, r)
	}
	class := func(first, last uint32) ir.Rule { return ir.Rule{Match: []ir.Match{values(packet.DNS, first, last)}} }
	names := func(not bool, sets ...int) ir.Rule { return ir.Rule{Names: []ir.NameMatch{{Sets: sets, Not: not}}} }
	add("malformed", class(packet.DNSMalformed, packet.DNSMalformed))
	add("other", class(packet.DNSOther, packet.DNSOther))
	add("none", class(packet.DNSNone, packet.DNSNone))
	add("0 but not 3", names(false, 0))
	p.Rules[3].Names = append(p.Rules[3].Names, ir.NameMatch{Sets: []int{3}, Not: true})
	add("1", names(false, 1))
	add("0 or 3", names(false, 0, 3))
	add("any", class(255, 255))
	add("upper half", class(32768, 65535))
	add("root", names(false, 2))
	add("no name", names(true, 2))
	return p
}

// A dnsWriter makes DNS messages, many of them broken.
type dnsWriter struct{ *rand.Rand }

func (w dnsWriter) oneIn(n int) bool { return w.IntN(n) == 0 }

func (w dnsWriter) pick(words ...uint16) uint16 { return words[w.IntN(len(words))] }

// label returns a label: its length and its text.
func (w dnsWriter) label() []byte {
	text := []string{"a", "b", "A", "evil", "EVIL", "example", "eXample", "deep", "x.y", "x", "\x00\xff", "@[`{", "\\\x7f",
		strings.Repeat("l", 63), strings.Repeat("L", 63), strings.Repeat("l", 62)}[w.IntN(16)]
	if w.oneIn(8) {
		text = strings.Repeat("z", 1+w.IntN(63))
	}
	size := byte(len(text))
	if w.oneIn(60) {
		size = byte(w.IntN(256))
	}
	return append([]byte{size}, text...)
}

func (w dnsWriter) name() []byte {
	var b []byte
	labels := w.IntN(6)
	switch w.IntN(20) {
	case 0:
		labels = 120 + w.IntN(12)
	case 1:
		labels = 14 + w.IntN(5)
	}
	for range labels {
		if labels > 13 {
			b = append(b, 1, "aAb"[w.IntN(3)])
		} else {
			b = append(b, w.label()...)
		}
	}
	switch {
	case w.oneIn(40):
		b = append(b, 0xc0, 12) // a compression pointer
	case w.oneIn(20): // a name of the largest length, or one byte longer
		for len(b) < 254+w.IntN(3) {
			n := min(1+w.IntN(63), max(1, 254-len(b)-1))
			b = append(append(b, byte(n)), strings.Repeat("q", n)...)
		}
	case w.oneIn(15):
		b = append(b, []string{"\x04evil\x07example", "\x01B\x01a", "\x01a\x01b\x01a", "\x03x.y\x01a"}[w.IntN(4)]...)
	}
	return append(b, 0)
}

func (w dnsWriter) record() []byte {
	name := [][]byte{{0}, {0}, {0}, {0xc0, 12}, []byte("\x01a\x00")}[w.IntN(5)]
	data := make([]byte, w.IntN(40))
	size := len(data)
	if w.oneIn(8) {
		size += w.IntN(5) - 2
	}
	b := append([]byte{}, name...)
	for _, word := range []uint16{w.pick(41, 41, 41, 250, 1), 1232, 0, 0, uint16(size)} {
		b = binary.BigEndian.AppendUint16(b, word)
	}
	return append(b, data...)
}

func (w dnsWriter) message() []byte {
	flags, extras := uint16(0x0100), uint16(w.IntN(3))
	switch w.IntN(20) {
	case 0:
		flags = uint16(w.Uint32())
	case 1:
		flags |= 0x8000
	}
	var b []byte
	for _, word := range []uint16{uint16(w.Uint32()), flags, 1, 0, 0, extras} {
		b = binary.BigEndian.AppendUint16(b, word)
	}
	if w.oneIn(12) {
		b[4+w.IntN(8)] = byte(w.IntN(4))
	}
	b = append(b, w.name()...)
	b = binary.BigEndian.AppendUint16(b, w.pick(1, 16, 28, 255, 252, 32768, 65535, 0, uint16(w.Uint32())))
	b = binary.BigEndian.AppendUint16(b, w.pick(1, 1, 1, 1, 255, 3, 0, 257))
	for range extras {
		b = append(b, w.record()...)
	}
	if w.oneIn(10) {
		b = append(b, make([]byte, w.IntN(4))...)
	}
	if w.oneIn(8) {
		b = b[:w.IntN(len(b)+1)]
	}
	if w.oneIn(30) {
		b = append(b, make([]byte, 5000)...)
	}
	return b
}

// dnsCarriers are datagrams that get a message as their payload.
var dnsCarriers = []string{
	"udp 198.51.100.7:1000 > 192.0.2.1:53",
	"udp 198.51.100.7:1000 > 192.0.2.1:5353 vlan=10",
	"udp 198.51.100.7:1000 > 192.0.2.1:53 vlan=10,20 ipopts=94040000",
	"udp [2001:db8::7]:1000 > [2001:db8::1]:53",
	"udp [2001:db8::7]:1000 > [2001:db8::1]:53 ext=hbh,dst",
}

// dnsOddities are packets that contain no message, or only a part of one.
var dnsOddities = []string{
	"udp 198.51.100.7:1000 > 192.0.2.1:54",
	"udp 198.51.100.7:53 > 192.0.2.1:1000",
	"tcp 198.51.100.7:1000 > 192.0.2.1:53 P. ack=1",
	"udp 198.51.100.7:1000 > 192.0.2.1:53 frag=first",
	"udp 198.51.100.7:1000 > 192.0.2.1:53 frag=1480",
	"udp 198.51.100.7:1000 > 192.0.2.1:53 udplen=30",
	"udp 198.51.100.7:1000 > 192.0.2.1:53 udplen=0",
	"udp [2001:db8::7]:1000 > [2001:db8::1]:53 frag=first",
	"icmp 198.51.100.7 > 192.0.2.1 echo-request",
}

func (w dnsWriter) probe(t testing.TB) subject.Probe {
	carrier := dnsCarriers[w.IntN(len(dnsCarriers))]
	if w.oneIn(20) {
		carrier = dnsOddities[w.IntN(len(dnsOddities))]
	}
	f := carrying(t, carrier, w.message(), make([]byte, w.IntN(2)*w.IntN(20)))
	if w.oneIn(20) {
		f.Frame = f.Frame[:14+w.IntN(len(f.Frame)-13)]
	}
	return f
}

// TestDNSRandom tests random DNS messages, many of them malformed, with rules for two ports and for all ports. FLOODWALL_LONG=1 tests 5 million
// messages.
func TestDNSRandom(t *testing.T) {
	_, seed := subject.Seeded(t)
	packets := 8000
	if os.Getenv("FLOODWALL_LONG") != "" {
		packets = 1_250_000
	}
	ports := ir.Match{Field: packet.DPort, Values: []ir.Range{
		{First: packet.PortUDP + 53, Last: packet.PortUDP + 53}, {First: packet.PortUDP + 5353, Last: packet.PortUDP + 5353},
	}}
	for i, program := range []*ir.Program{dnsProgram(ports), dnsProgram()} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			w := dnsWriter{rand.New(rand.NewPCG(seed, uint64(i)))}
			s := programmed(program)
			forms := s.Forms(t)
			testutil.RequireRoot(t)
			hits := map[uint32]int{}
			for _, x := range forms {
				p := s.Load(t, x)
				for left := packets; left > 0; left -= 1000 {
					frames := make([]subject.Probe, 1000)
					for j := range frames {
						frames[j] = w.probe(t)
						hits[s.Answered(frames[j]).Slot]++
					}
					s.Compare(t, p, string(x.Form), frames)
				}
			}
			for i, r := range s.Program.Rules {
				if n := hits[subject.SlotOf(ir.Reason{Kind: ir.ReasonRule, Index: i})]; n < packets/1000 && r.Name != "none" {
					t.Errorf("only %d packets met rule %s", n, r.Name)
				}
			}
		})
	}
}

// dnsQuery returns a valid query. name is in wire format.
func dnsQuery(name string, rest ...byte) []byte {
	b := append([]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00"), byte(len(rest)/11), 0)[:12]
	b = append(b, name...)
	b = append(b, 0, 16, 0, 1)
	return append(b, rest...)
}

// nameOf returns a name in wire format, with labels of the given lengths and the root.
func nameOf(lengths ...int) string {
	var b strings.Builder
	for _, n := range lengths {
		b.WriteByte(byte(n))
		b.WriteString(strings.Repeat("a", n))
	}
	return b.String() + "\x00"
}

// dnsEdges returns messages at the limits, and copies in which one byte has a value that could mislead a parser.
func dnsEdges(t testing.TB) (frames []subject.Probe) {
	ones := make([]int, 128)
	for i := range ones {
		ones[i] = 1
	}
	names := []string{"\x00", nameOf(63), nameOf(64), nameOf(63, 63, 63, 61), nameOf(63, 63, 63, 62), nameOf(ones[:126]...), nameOf(ones[:127]...),
		nameOf(ones...), nameOf(ones[:15]...), nameOf(ones[:16]...), nameOf(ones[:17]...), "\x04evil\x07example\x00", "\x05xevil\x07example\x00"}
	for n := range 256 {
		names = append(names, string([]byte{byte(n)})+strings.Repeat("a", n)+"\x00", "\x01a"+string([]byte{byte(n)}))
	}
	opt := "\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"
	for i, name := range names {
		for _, rest := range []string{"", opt, opt + opt, opt[:10] + "\x01"} {
			frames = append(frames, carrying(t, dnsCarriers[i%len(dnsCarriers)], dnsQuery(name, []byte(rest)...), nil))
		}
	}
	whole := dnsQuery("\x04evil\x07example\x00", []byte(opt[:10]+"\x0c\x00\x0a\x00\x08abcdefgh")...)
	for cut := range whole {
		frames = append(frames, carrying(t, dnsCarriers[cut%len(dnsCarriers)], whole[:cut], whole[cut:]))
		for _, value := range []byte{0, 1, 2, 41, 63, 64, 128, 192, 255, whole[cut] + 1, whole[cut] - 1, whole[cut] ^ 0x20} {
			changed := append([]byte{}, whole...)
			changed[cut] = value
			frames = append(frames, carrying(t, dnsCarriers[cut%len(dnsCarriers)], changed, nil))
		}
	}
	return append(frames, subject.CutEverywhere(frames[len(frames)-1:])...)
}

// TestDNSEdges tests messages at the limit of each length, and messages that are truncated or changed at each byte.
func TestDNSEdges(t *testing.T) {
	t.Parallel()
	programmed(dnsProgram(dnsPort(53))).Agree(t, dnsEdges(t))
}

// TestDNSPorts tests rules for more ports than the program can store.
func TestDNSPorts(t *testing.T) {
	t.Parallel()
	p := &ir.Program{}
	var frames []subject.Probe
	for i := range 20 {
		port := 50 + uint32(i*i*i)
		p.Rules = append(p.Rules, ir.Rule{Name: fmt.Sprint(port), Verdict: ir.Drop, Match: []ir.Match{dnsPort(port), values(packet.DNS, 0, 65535)}})
		for _, n := range []uint32{port - 1, port, port + 1} {
			frames = append(frames, carrying(t, fmt.Sprintf("udp 198.51.100.7:1000 > 192.0.2.1:%d", n), dnsQuery("\x01a\x00"), nil))
		}
	}
	programmed(p).Agree(t, frames)
}

// TestDNSSplit moves the border between the buffers of a large frame to each byte of a query.
func TestDNSSplit(t *testing.T) {
	t.Parallel()
	s := programmed(dnsProgram(dnsPort(53)))
	x := s.Forms(t)[0]
	testutil.RequireRoot(t)
	p := s.Load(t, x)
	rest := append([]byte("\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x13\x88"), make([]byte, 5000)...)
	query := dnsQuery(nameOf(63, 63, 63, 45)[:238]+"\x04evil\x07example\x00", rest...)
	query[11] = 1
	f := s.Answered(carrying(t, dnsCarriers[0], query, nil))
	if got := s.ReasonIn(f.Slot); got != "0 but not 3" {
		t.Fatalf("Eval says %s", got)
	}
	for linear := 256; linear < 340; linear++ {
		slot, _, err := countSplit(t, p, f.Frame, linear)
		if errors.Is(err, unix.EINVAL) {
			t.Skip("this kernel does not let a test choose the border")
		}
		if err != nil || slot != f.Slot {
			t.Fatalf("split at %d: counted in %s, %v", linear, s.ReasonIn(slot), err)
		}
	}
}
