// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// TestFrames sends each flow and decodes the received frames with another project's parser.
func TestFrames(t *testing.T) {
	big := slices.Repeat([]byte("payload."), 100)
	tests := []struct {
		name string
		flow Flow
		want string // see describe
	}{
		{"udp, shortest", Flow{SPort: Port(1), DPort: Port(9)}, "udp 198.18.0.0/15:1 > 10.0.0.2:9 df ttl 64 payload 0 frame 60"},
		{"udp, 128 bytes", Flow{SPort: AnyPort, DPort: Port(9), Size: 128}, "udp 198.18.0.0/15:1024-65535 > 10.0.0.2:9 df ttl 64 payload 86 frame 128"},
		{"udp, full size", Flow{DPort: Ports{1, 65535}, SPort: Port(7), Size: 1514}, "udp 198.18.0.0/15:7 > 10.0.0.2:1-65535 df ttl 64 payload 1472 frame 1514"},
		{"udp, odd payload", Flow{SPort: AnyPort, DPort: Port(9), Payload: []byte("abc")}, "udp 198.18.0.0/15:1024-65535 > 10.0.0.2:9 df ttl 64 payload 3 frame 60"},
		{"udp, long odd payload", Flow{SPort: Port(5), DPort: Port(9), Payload: big[:799]}, "udp 198.18.0.0/15:5 > 10.0.0.2:9 df ttl 64 payload 799 frame 841"},
		{"udp, no checksum", Flow{SPort: Port(5), DPort: Port(9), NoSum: true}, "udp 198.18.0.0/15:5 > 10.0.0.2:9 df ttl 64 nosum payload 0 frame 60"},
		{"udp, fragments allowed", Flow{SPort: Port(5), DPort: Port(9), Fragments: true, TTL: 3}, "udp 198.18.0.0/15:5 > 10.0.0.2:9 ttl 3 payload 0 frame 60"},
		{"syn", Flow{Proto: TCP, Flags: SYN, SPort: AnyPort, DPort: Port(80)}, "tcp 198.18.0.0/15:1024-65535 > 10.0.0.2:80 S df ttl 64 payload 0 frame 60"},
		{"syn with options", Flow{Proto: TCP, Flags: SYN, Options: SYNOptions, SPort: AnyPort, DPort: Port(80)}, "tcp 198.18.0.0/15:1024-65535 > 10.0.0.2:80 S mss 1460 df ttl 64 payload 0 frame 74"},
		{"ack", Flow{Proto: TCP, Flags: ACK | PSH, SPort: AnyPort, DPort: Port(80), Payload: []byte("GET /")}, "tcp 198.18.0.0/15:1024-65535 > 10.0.0.2:80 PA df ttl 64 payload 5 frame 60"},
		{"icmp", Flow{Proto: ICMP, ICMPType: 8, SPort: AnyPort, DPort: Ports{1, 9}, Size: 98}, "icmp 198.18.0.0/15 > 10.0.0.2 8/0 df ttl 64 payload 56 frame 98"},
		{"vlan", Flow{SPort: Port(5), DPort: Port(9), VLAN: []uint16{7}}, "vlan 7 udp 198.18.0.0/15:5 > 10.0.0.2:9 df ttl 64 payload 0 frame 60"},
		{"two vlans", Flow{Proto: TCP, Flags: RST, SPort: Port(5), DPort: AnyPort, VLAN: []uint16{7, 4094}}, "vlan 7 vlan 4094 tcp 198.18.0.0/15:5 > 10.0.0.2:1024-65535 R df ttl 64 payload 0 frame 62"},
	}
	p := newPair(t)
	sink := p.sink(t, p.b, CaptureDrop)
	for _, tt := range tests {
		for _, v6 := range []bool{false, true} {
			name, flow, want := tt.name, tt.flow, tt.want
			flow.From, flow.To = MustAddrs("198.18.0.0/15"), MustAddrs("10.0.0.2")
			if v6 {
				name, want = name+", v6", wantV6(&flow, want)
				flow.From, flow.To = MustAddrs("2001:db8::/33"), MustAddrs("fd00::2")
			}
			t.Run(name, func(t *testing.T) {
				const n = 300 // enough for carries in every checksum
				for i, frame := range p.exchange(t, sink, flow, n) {
					got, err := describe(frame, &flow)
					if err != nil {
						t.Fatalf("frame %d: %v\n%.200x", i, err, frame)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("frame %d (-want +got):\n%s%.200x", i, diff, frame)
					}
				}
			})
		}
	}
	if packets, _, err := sink.Counted(); err != nil || packets != uint64(2*300*len(tests)) {
		t.Errorf("counted %d packets, %v; want %d", packets, err, 2*300*len(tests))
	}
}

// TestRandomID checks that identifiers are all sorts, and that nothing else of the payload is touched.
func TestRandomID(t *testing.T) {
	p := newPair(t)
	sink := p.sink(t, p.b, CaptureDrop)
	flow := Flow{
		From: MustAddrs("198.18.0.0/15"), To: MustAddrs("10.0.0.2"), SPort: AnyPort, DPort: Port(53),
		Payload: []byte("id of a query"), RandomID: true,
	}
	const n = 300
	seen := map[string]bool{}
	for i, frame := range p.exchange(t, sink, flow, n) {
		if _, err := describe(frame, &flow); err != nil {
			t.Fatalf("frame %d: %v\n%x", i, err, frame)
		}
		payload := string(frame[14+20+8:][:len(flow.Payload)])
		if payload[2:] != " of a query" {
			t.Fatalf("frame %d: payload %q", i, payload)
		}
		seen[payload[:2]] = true
	}
	if len(seen) < n*9/10 {
		t.Errorf("%d identifiers in %d frames", len(seen), n)
	}
	if err := (&Flow{From: flow.From, To: flow.To, Proto: TCP, Payload: flow.Payload, RandomID: true}).check(); err == nil {
		t.Error("an identifier in a flow of TCP is taken")
	}
}

// TestRandomPayload checks that eight bytes of the payload are all sorts, that nothing else is touched, and that checksums are right.
func TestRandomPayload(t *testing.T) {
	p := newPair(t)
	sink := p.sink(t, p.b, CaptureDrop)
	flow := Flow{
		From: MustAddrs("198.18.0.0/15"), To: MustAddrs("10.0.0.2"), SPort: AnyPort, DPort: Port(53),
		Payload: []byte("id of a query.."), RandomID: true, Random: 6,
	}
	const n = 300
	seen := map[string]bool{}
	for i, frame := range p.exchange(t, sink, flow, n) {
		if _, err := describe(frame, &flow); err != nil {
			t.Fatalf("frame %d: %v\n%x", i, err, frame)
		}
		payload := string(frame[14+20+8:][:len(flow.Payload)])
		if payload[2:6] != " of " || payload[14:] != "." {
			t.Fatalf("frame %d: payload %q", i, payload)
		}
		seen[payload[6:14]] = true
	}
	if len(seen) < n {
		t.Errorf("%d different bytes in %d frames", len(seen), n)
	}
	for _, at := range []int{-2, 5, 8, 300} {
		if err := (&Flow{From: flow.From, To: flow.To, Payload: flow.Payload, Random: at}).check(); err == nil {
			t.Errorf("random bytes at %d of %d are taken", at, len(flow.Payload))
		}
	}
}

// wantV6 returns the text for the same flow between IPv6 addresses.
func wantV6(f *Flow, v4 string) string {
	s := strings.NewReplacer("198.18.0.0/15:", "[2001:db8::/33]:", "10.0.0.2:", "[fd00::2]:",
		"198.18.0.0/15", "2001:db8::/33", "10.0.0.2", "fd00::2", "df ", "", "icmp", "icmp6").Replace(v4)
	tags, tcp := 4*len(f.VLAN), f.Proto == TCP
	l4 := 8
	if tcp {
		l4 = 20 + len(f.Options)
	}
	payload := max(len(f.Payload), f.Size-14-tags-40-l4)
	frame := max(60, 14+tags+40+l4+payload)
	return s[:strings.Index(s, "payload")] + fmt.Sprintf("payload %d frame %d", payload, frame)
}

// describe renders a frame in one line. If the flow has a range for a field, and the frame's value is in the range, the line has the range. Wrong
// checksums and addresses of the wrong device are errors.
func describe(frame []byte, f *Flow) (string, error) {
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	// An error above is only about a payload that the parser guesses from the ports.
	if e := packet.ErrorLayer(); e != nil && packet.TransportLayer() == nil {
		return "", e.Error()
	}
	if err := verifySums(packet); err != nil && !f.NoSum {
		return "", err
	}
	d := description{flow: f}
	for _, layer := range headers(packet) {
		d.add(layer)
	}
	for _, tag := range d.tags {
		d.head = append(d.head, fmt.Sprintf("vlan %d", tag))
	}
	words := append(d.head, d.proto, d.src, ">", d.dst)
	words = append(words, d.rest...)
	return strings.Join(append(words, fmt.Sprintf("ttl %d%s payload %d frame %d", d.ttl, d.note, d.payload, len(frame))), " "), nil
}

// headers returns the layers up to L4. The parser may take the data behind them for a packet, which it is not.
func headers(packet gopacket.Packet) (all []gopacket.Layer) {
	for _, layer := range packet.Layers() {
		all = append(all, layer)
		switch layer.LayerType() {
		case layers.LayerTypeUDP, layers.LayerTypeTCP, layers.LayerTypeICMPv4, layers.LayerTypeICMPv6:
			return all
		}
	}
	return all
}

// verifySums returns an error if a checksum is wrong.
func verifySums(packet gopacket.Packet) error {
	for _, layer := range headers(packet) {
		if l4, ok := layer.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); ok {
			if err := l4.SetNetworkLayerForChecksum(packet.NetworkLayer()); err != nil {
				return err
			}
		}
		if summed, ok := layer.(gopacket.LayerWithChecksum); ok {
			err, result := summed.VerifyChecksum()
			if layer.LayerType() == layers.LayerTypeUDP && result.Correct == 0 {
				result.Valid = result.Actual == 0xffff // RFC 768, which the parser does not know
			}
			if err != nil || !result.Valid {
				return fmt.Errorf("checksum of %s: %+v, %v", layer.LayerType(), result, err)
			}
		}
	}
	return nil
}

type description struct {
	flow            *Flow
	tags            []uint16
	head, rest      []string
	proto, src, dst string
	note, df        string
	ttl             uint8
	length, payload int
	isIPv6          bool
}

func (d *description) add(layer gopacket.Layer) {
	switch l := layer.(type) {
	case *layers.Dot1Q:
		d.tags = append(d.tags, l.VLANIdentifier)
	case *layers.IPv4:
		d.addresses(l.SrcIP, l.DstIP)
		d.ttl = l.TTL
		if l.Flags&layers.IPv4DontFragment != 0 {
			d.df = "df"
		}
		d.length = int(l.Length) - int(l.IHL)*4
	case *layers.IPv6:
		d.addresses(l.SrcIP, l.DstIP)
		d.ttl, d.isIPv6, d.length = l.HopLimit, true, int(l.Length)
	case *layers.UDP:
		d.ports("udp", uint16(l.SrcPort), uint16(l.DstPort), 8)
		if l.Checksum == 0 {
			d.note = " nosum"
		}
	case *layers.TCP:
		d.ports("tcp", uint16(l.SrcPort), uint16(l.DstPort), int(l.DataOffset)*4)
		d.rest = append([]string{flagNames(l)}, d.rest...)
	case *layers.ICMPv4:
		d.icmp("icmp", uint8(l.TypeCode.Type()), uint8(l.TypeCode.Code()))
	case *layers.ICMPv6:
		d.icmp("icmp6", uint8(l.TypeCode.Type()), uint8(l.TypeCode.Code()))
	}
}

func (d *description) addresses(src, dst []byte) {
	d.src, d.dst = within(src, d.flow.From), within(dst, d.flow.To)
}

// within renders an address, or the prefix of addresses that it is in.
func within(bytes []byte, a Addresses) string {
	addr, _ := netip.AddrFromSlice(bytes)
	if a.prefix.IsValid() && a.prefix.Contains(addr) && !a.prefix.IsSingleIP() {
		return a.prefix.String()
	}
	return addr.String()
}

func (d *description) ports(proto string, src, dst uint16, header int) {
	d.proto, d.payload = proto, d.length-header
	for _, end := range []struct {
		text *string
		port uint16
		want Ports
	}{{&d.src, src, d.flow.SPort}, {&d.dst, dst, d.flow.DPort}} {
		port := fmt.Sprint(end.port)
		if end.want.First < end.want.Last && end.want.First <= end.port && end.port <= end.want.Last {
			port = fmt.Sprintf("%d-%d", end.want.First, end.want.Last)
		}
		if d.isIPv6 {
			*end.text = "[" + *end.text + "]"
		}
		*end.text += ":" + port
	}
	d.finish()
}

func (d *description) icmp(proto string, kind, code uint8) {
	d.proto, d.payload = proto, d.length-8
	d.rest = append(d.rest, fmt.Sprintf("%d/%d", kind, code))
	d.finish()
}

func (d *description) finish() {
	if d.df != "" {
		d.rest = append(d.rest, d.df)
	}
}

func flagNames(l *layers.TCP) string {
	names := ""
	for _, flag := range []struct {
		set  bool
		name string
	}{{l.FIN, "F"}, {l.SYN, "S"}, {l.RST, "R"}, {l.PSH, "P"}, {l.ACK, "A"}, {l.URG, "U"}} {
		if flag.set {
			names += flag.name
		}
	}
	for _, o := range l.Options {
		if o.OptionType == layers.TCPOptionKindMSS {
			names += fmt.Sprintf(" mss %d", int(o.OptionData[0])<<8|int(o.OptionData[1]))
		}
	}
	return names
}
