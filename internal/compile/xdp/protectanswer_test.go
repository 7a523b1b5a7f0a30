// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// A syn has the TCP options of a SYN. A number below 0 means that the SYN does not have the option.
type syn struct {
	mss, wscale int
	sack, ecn   bool
	tsval       int64
}

// linux has the options of a SYN of Linux.
var linux = syn{mss: 1460, wscale: 7, sack: true, tsval: 0x01020304}

// options returns the TCP options in hex, in the order of Linux, or "none".
func (o syn) options() string {
	var b []byte
	if o.mss >= 0 {
		b = binary.BigEndian.AppendUint16(append(b, 2, 4), uint16(o.mss))
	}
	if o.sack {
		b = append(b, 4, 2)
	}
	if o.tsval >= 0 {
		b = binary.BigEndian.AppendUint32(append(b, 8, 10), uint32(o.tsval))
		b = append(b, 0, 0, 0, 0)
	}
	if o.wscale >= 0 {
		b = append(b, 1, 3, 3, byte(o.wscale))
	}
	if len(b) == 0 {
		return "none"
	}
	return hex.EncodeToString(b)
}

func (o syn) flags() string {
	if o.ecn {
		return "SEW"
	}
	return "S"
}

// A synAck is a SYN-ACK, with its headers.
type synAck struct {
	ethernet *layers.Ethernet
	tags     []*layers.Dot1Q
	ip4      *layers.IPv4
	ip6      *layers.IPv6
	tcp      *layers.TCP
}

// readSynAck decodes a SYN-ACK. It fails unless lengths and checksums are as gopacket computes them, and nothing follows the packet.
func readSynAck(t testing.TB, frame []byte) (a synAck) {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if p.ErrorLayer() != nil {
		t.Fatalf("%v\n%x", p.ErrorLayer().Error(), frame)
	}
	var list []gopacket.SerializableLayer
	for _, l := range p.Layers() {
		switch l := l.(type) {
		case *layers.Ethernet:
			a.ethernet = l
		case *layers.Dot1Q:
			a.tags = append(a.tags, l)
		case *layers.IPv4:
			a.ip4 = l
		case *layers.IPv6:
			a.ip6 = l
		case *layers.TCP:
			a.tcp = l
			l.SetNetworkLayerForChecksum(p.NetworkLayer())
		default:
			t.Fatalf("the answer has a layer %s\n%s", l.LayerType(), p)
		}
		list = append(list, l.(gopacket.SerializableLayer))
	}
	if a.tcp == nil {
		t.Fatalf("the answer is no TCP\n%s", p)
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, list...); err != nil {
		t.Fatal(err)
	}
	// gopacket pads frames to the smallest length of Ethernet, as drivers do.
	if diff := cmp.Diff(b.Bytes()[:min(len(frame), len(b.Bytes()))], frame); diff != "" {
		t.Fatalf("the answer is not as gopacket makes it:\n%s%s", diff, p)
	}
	return a
}

// offers returns the options of a SYN-ACK, as text.
func (a synAck) offers() string {
	var words []string
	for _, o := range a.tcp.Options {
		switch o.OptionType {
		case layers.TCPOptionKindMSS:
			words = append(words, fmt.Sprintf("mss:%d", binary.BigEndian.Uint16(o.OptionData)))
		case layers.TCPOptionKindSACKPermitted:
			words = append(words, "sack")
		case layers.TCPOptionKindTimestamps:
			words = append(words, fmt.Sprintf("ts:%#x", binary.BigEndian.Uint32(o.OptionData[4:])))
		case layers.TCPOptionKindWindowScale:
			words = append(words, fmt.Sprintf("ws:%d", o.OptionData[0]))
		case layers.TCPOptionKindNop:
		default:
			words = append(words, o.String())
		}
	}
	return strings.Join(words, " ")
}

// tsval returns the timestamp of a SYN-ACK, and false if it has none.
func (a synAck) tsval() (uint32, bool) {
	for _, o := range a.tcp.Options {
		if o.OptionType == layers.TCPOptionKindTimestamps {
			return binary.BigEndian.Uint32(o.OptionData), true
		}
	}
	return 0, false
}

// offered returns the options of the SYN-ACK to a SYN, by RFC 7323 and RFC 2018: only options that the SYN has. Without timestamps, window scaling
// and SACK are offered only as far as the cookie can encode them.
func (o syn) offered(announced int) string {
	var words []string
	if o.mss > 0 {
		words = append(words, fmt.Sprintf("mss:%d", announced))
	}
	if o.sack {
		words = append(words, "sack")
	}
	if o.tsval >= 0 {
		words = append(words, fmt.Sprintf("ts:%#x", o.tsval))
	}
	if o.wscale >= 0 && (o.tsval >= 0 || o.sack) {
		words = append(words, fmt.Sprintf("ws:%d", announcedWScale))
	}
	return strings.Join(words, " ")
}

// A route has the addresses of a SYN, and other properties of its frame.
type route struct {
	client, server, rest string
	announced            int // MSS
}

var routes = []route{
	{"198.51.100.7", "192.0.2.1", "", announced4},
	{"198.51.100.7", "192.0.2.1", "vlan=7,8 ipopts=94040000 dscp=10", announced4},
	{"198.51.100.7", "192.0.2.1", `payload="GET /" vlan=5 ttl=3`, announced4},
	{"2001:db8::7", "2001:db8:1::1", "", announced6},
	{"2001:db8::7", "2001:db8:1::1", "vlan=7,8 ext=hbh,dst", announced6},
	{"2001:db8::7", "2001:db8:1::1", `ext=frag payload="GET /" dscp=10`, announced6},
}

// everySyn lists SYNs with every combination of options.
func everySyn() (list []syn) {
	for _, mss := range []int{-1, 0, 1, 536, 1219, 1459, 1460, 65535} {
		for _, wscale := range []int{-1, 0, 1, 9, 15, 255} {
			for bits := range 8 {
				o := syn{mss: mss, wscale: wscale, sack: bits&1 != 0, ecn: bits&2 != 0, tsval: -1}
				if bits&4 != 0 {
					o.tsval = 0xfedcba98
				}
				list = append(list, o)
			}
		}
	}
	return list
}

// TestSynAck sends SYNs with every combination of options on every route, and acknowledges each SYN-ACK.
func TestSynAck(t *testing.T) {
	s := loadShield(t, protecting(always()))
	port := 1024
	for _, r := range routes {
		for _, o := range everySyn() {
			port++
			s.handshake(r, o, port)
		}
	}
}

// handshake sends a SYN from a port, checks the answer, and acknowledges it.
func (s *shield) handshake(r route, o syn, port int) {
	s.t.Helper()
	tuple := fmt.Sprintf("tcp %s > %s", address(r.client, uint16(port)), address(r.server, 80))
	frame := subject.FramesOf(s.t, fmt.Sprintf("%s %s seq=4294967295 tcpopts=%s %s", tuple, o.flags(), o.options(), r.rest))[0].Frame
	var action uint32
	var answer []byte
	s.expect(tuple, "answered 1", func() { action, answer = s.send(frame) })
	if action != xdpTX {
		s.t.Fatalf("%+v %+v: XDP action %d, want %d", r, o, action, xdpTX)
	}
	a := readSynAck(s.t, answer)
	s.headers(frame, answer, a)
	if got, want := a.offers(), o.offered(r.announced); got != want {
		s.t.Errorf("%+v: offered %q, want %q", o, got, want)
	}
	if !a.tcp.SYN || !a.tcp.ACK || a.tcp.RST || a.tcp.FIN || a.tcp.CWR || a.tcp.ECE != (o.ecn && o.tsval >= 0) ||
		a.tcp.Ack != 0 || a.tcp.Window != announcedWindow {
		s.t.Errorf("%+v: the answer is %+v", o, a.tcp)
	}
	s.must(xdpPass, "proved 1", "%s . seq=0 ack=%d tcpopts=%s", tuple, a.tcp.Seq+1, a.echo())
	s.must(xdpPass, "", "%s . seq=1 ack=1", tuple) // the flow is known
}

// echo returns the options of the ACK of a SYN-ACK.
func (a synAck) echo() string {
	if stamp, ok := a.tsval(); ok {
		return fmt.Sprintf("0101080a00000001%08x", stamp)
	}
	return "none"
}

// headers checks that an answer goes back to where the SYN came from, and is not longer.
func (s *shield) headers(frame, answer []byte, a synAck) {
	s.t.Helper()
	in, out := packet.Decode(frame), packet.Decode(answer)
	if !bytes.Equal(frame[:6], answer[6:12]) || !bytes.Equal(frame[6:12], answer[:6]) {
		s.t.Errorf("Ethernet addresses are not exchanged: %x > %x", frame[:12], answer[:12])
	}
	if in.Src != out.Dst || in.Dst != out.Src || in.Value[packet.DPort] != out.Value[packet.SPort] ||
		in.Value[packet.SPort] != out.Value[packet.DPort] || in.Value[packet.VLAN] != out.Value[packet.VLAN] {
		s.t.Errorf("the answer to %+v is %+v", in, out)
	}
	if len(answer) > len(frame) || out.Value[packet.Length] > in.Value[packet.Length] {
		s.t.Errorf("%d bytes are answered with %d", len(frame), len(answer))
	}
	if out.Value[packet.TTL] != 64 || out.Value[packet.DSCP] != 0 || out.Value[packet.Fragment] != packet.FragmentNone {
		s.t.Errorf("the answer is %+v", out)
	}
	if a.ip4 != nil && (a.ip4.Flags != layers.IPv4DontFragment || a.ip4.TOS != 0 || len(a.ip4.Options) > 0) {
		s.t.Errorf("the answer is %+v", a.ip4)
	}
}

// TestSynAckOptions tests SYNs with unusual encodings of options.
func TestSynAckOptions(t *testing.T) {
	s := loadShield(t, protecting(always()))
	for i, test := range []struct{ name, options, want string }{
		{"in another order, with padding", "01 0303 07 01 04 02 01 080a 00000009 00000000 0204 05b4", "mss:1460 sack ts:0x9 ws:7"},
		{"as Linux sends them", "020405b4 0402080a 00000009 00000000 01030307", "mss:1460 sack ts:0x9 ws:7"},
		{"the same, ended by the last", "020405b4 0402080a 00000009 00000000 00030307", "mss:1460 sack ts:0x9"},
		{"the same, the last too short", "020405b4 0402080a 00000009 00000000 01030207", "mss:1460 sack ts:0x9"},
		{"the same, with less", "020405b4 0101080a 00000009 00000000 01030307", "mss:1460 ts:0x9 ws:7"},
		{"ended", "020405b4 00 04 02 03", "mss:1460"},
		{"too short", "020405b4 0402 0301 0000", "mss:1460 sack"},
		{"too long", "020405b4 0402 0830 0000", "mss:1460 sack"},
		{"cut off", "020405b4 0402 01 08", "mss:1460 sack"},
		{"of another length", "0203 05 0303 07 0403 00 0809 0000000000000000", "ws:7"},
		{"MPTCP and Fast Open", "020405b4 0402 1e0c 0081 0000000000000000 2202 01 0303 08 01", "mss:1460 sack ws:7"},
		{"twice", "020405b4 02040218 0402 0402", "mss:1460 sack"},
	} {
		if test.name == "of another length" {
			test.want = "" // the cookie cannot encode window scaling without other options
		}
		options := strings.ReplaceAll(test.options, " ", "")
		action, answer := s.sendLine("tcp 198.51.100.7:%d > 192.0.2.1:80 S tcpopts=%s", 2000+i, options)
		if action != xdpTX {
			t.Errorf("%s: XDP action %d, want %d", test.name, action, xdpTX)
			continue
		}
		if got := readSynAck(t, answer).offers(); got != test.want {
			t.Errorf("%s: offered %q, want %q", test.name, got, test.want)
		}
	}
}

// TestSynAckKey sends SYNs that are authenticated by a key, which only the kernel has. If the policy has a limit for such SYNs, the SYNs within the
// limit must pass to the kernel. All others must be answered like any SYN.
func TestSynAckKey(t *testing.T) {
	open, keyed := always(), always()
	keyed.Keyed = []int{0}
	testKeys(t, loadShield(t, protecting(open)), "answered 2000")
	limit := ir.Limit{Rule: "tcp:authenticated", Rate: 10, Per: time.Second, Burst: 10}
	testKeys(t, loadShield(t, protecting(keyed, limit)), "answered 1990, authenticated 10")
}

func testKeys(t *testing.T, s *shield, want string) {
	t.Helper()
	defer testutil.OnOneCPU(t)()
	for _, options := range []string{"1312" + strings.Repeat("00", 16), "1d10" + strings.Repeat("00", 14)} {
		frame := subject.FramesOf(t, "tcp 198.51.100.7:4000 > 192.0.2.1:80 S tcpopts=020405b4"+options)[0].Frame
		s.expect(options, want, func() {
			for range 2000 {
				s.send(frame)
			}
		})
		s.now += time.Second
	}
}

// TestSynAckFrames sends frames that are longer than their packet, frames with wrong or partial checksums, and frames to a multicast group.
func TestSynAckFrames(t *testing.T) {
	s := loadShield(t, protecting(always()))
	frame := subject.FramesOf(t, "tcp 198.51.100.7:4000 > 192.0.2.1:80 S seq=9 tcpopts="+linux.options())[0].Frame
	wrong := bytes.Clone(frame)
	wrong[14+20+16] ^= 0xff
	group := bytes.Clone(frame)
	group[0] |= 1
	for name, f := range map[string][]byte{"padded": append(bytes.Clone(frame), make([]byte, 30)...), "partial checksum": wrong} {
		action, answer := s.send(f)
		if action != xdpTX || len(answer) != len(frame) {
			t.Errorf("%s: XDP action %d with %d bytes, want %d with %d", name, action, len(answer), xdpTX, len(frame))
			continue
		}
		readSynAck(t, answer)
	}
	s.expect("to a group", "limited 1", func() {
		if action, _ := s.send(group); action != xdpDrop {
			t.Errorf("to a group: XDP action %d, want %d", action, xdpDrop)
		}
	})
}
