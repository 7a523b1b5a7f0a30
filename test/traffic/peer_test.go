package traffic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// peer is a TCP of its own, that does what it is told, on the first client's link, at an address that its kernel does not
// have. It is one end of one connection at a time.
type peer struct {
	*synScene
	socket   int
	eth      layers.Ethernet
	from, to netip.AddrPort
	seq, ack uint32 // of the next segment
	stamp    uint32 // that the other end sent last
	plain    bool   // without timestamps
}

// The addresses of peers.
var peers = []netip.Addr{netip.MustParseAddr("10.0.0.77"), netip.MustParseAddr("fd00::77")}

// newPeer makes one that goes to an address of the server from a port.
func (s *synScene) newPeer(to netip.AddrPort, port uint16) *peer {
	s.Helper()
	p := &peer{synScene: s, to: to, seq: 1_000_000_000 + uint32(port)}
	at := peers[0]
	if to.Addr().Is6() {
		at = peers[1]
	}
	p.from = netip.AddrPortFrom(at, port)
	p.eth.SrcMAC, p.eth.DstMAC = s.mac(0, "protects"), s.mac(-1, s.devices[0])
	p.eth.EthernetType = layers.EthernetTypeIPv4
	if to.Addr().Is6() {
		p.eth.EthernetType = layers.EthernetTypeIPv6
	}
	s.ip(s.protects, fmt.Sprintf("neigh replace %s lladdr %s dev %s nud permanent", at, p.eth.SrcMAC, s.devices[0]))
	err := s.clients[0].Do(func() error { return p.open() })
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { unix.Close(p.socket) })
	return p
}

// open opens the socket, in the client.
func (p *peer) open() (err error) {
	dev, err := netlink.LinkByName("protects")
	if err != nil {
		return err
	}
	all := int(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL)))
	if p.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
		return err
	}
	return unix.Bind(p.socket, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: dev.Attrs().Index})
}

// mac is the address of a device of a client by its number, or of the host that protects with -1.
func (s *synScene) mac(client int, device string) (mac net.HardwareAddr) {
	s.Helper()
	h := s.protects
	if client >= 0 {
		h = s.clients[client]
	}
	err := h.Do(func() error {
		dev, err := netlink.LinkByName(device)
		if err == nil {
			mac = dev.Attrs().HardwareAddr
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return mac
}

// segment is what a peer sends.
type segment struct {
	flags   string // letters of tcpdump
	options []layers.TCPOption
	payload string
	before  uint32 // what its number is less than the next
}

// send sends a segment, which does not count until it is acknowledged.
func (p *peer) send(g segment) {
	p.Helper()
	tcp := layers.TCP{
		SrcPort: layers.TCPPort(p.from.Port()), DstPort: layers.TCPPort(p.to.Port()), Seq: p.seq - g.before, Ack: p.ack, Window: 60000,
		Options: g.options,
	}
	for flag, on := range map[byte]*bool{'S': &tcp.SYN, 'F': &tcp.FIN, 'R': &tcp.RST, 'P': &tcp.PSH, '.': &tcp.ACK} {
		*on = bytes.IndexByte([]byte(g.flags), flag) >= 0
	}
	frame := frameOf(p.eth, p.from, p.to, &tcp, g.payload)
	var err error
	for end := time.Now().Add(synPatience); err == nil; time.Sleep(time.Millisecond) {
		if err = unix.Send(p.socket, frame, 0); !errors.Is(err, unix.ENOBUFS) || time.Now().After(end) {
			break
		}
		err = nil // the device's queue is full
	}
	if err != nil {
		p.Fatal(err)
	}
}

// frameOf is a frame with a segment.
func frameOf(eth layers.Ethernet, from, to netip.AddrPort, tcp *layers.TCP, payload string) []byte {
	var ip gopacket.SerializableLayer
	if from.Addr().Is4() {
		v4 := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
		tcp.SetNetworkLayerForChecksum(v4)
		ip = v4
	} else {
		v6 := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
		tcp.SetNetworkLayerForChecksum(v6)
		ip = v6
	}
	frame := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(frame, options, &eth, ip, tcp, gopacket.Payload(payload)); err != nil {
		panic(err) // the layers are all there
	}
	return frame.Bytes()
}

// receive is the next segment for the peer, nil when there is none for so long.
func (p *peer) receive(wait time.Duration) *layers.TCP {
	p.Helper()
	buffer := make([]byte, 1<<16)
	for end := time.Now().Add(wait); time.Now().Before(end); {
		left := unix.NsecToTimeval(max(time.Until(end), time.Millisecond).Nanoseconds())
		unix.SetsockoptTimeval(p.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &left)
		n, err := unix.Read(p.socket, buffer)
		if err != nil {
			continue
		}
		decoded := gopacket.NewPacket(buffer[:n], layers.LayerTypeEthernet, gopacket.Default)
		tcp, _ := decoded.TransportLayer().(*layers.TCP)
		if tcp == nil || tcp.DstPort != layers.TCPPort(p.from.Port()) || tcp.SrcPort != layers.TCPPort(p.to.Port()) {
			continue
		}
		if s, err := stampOf(tcp); err == nil && p.expects(tcp) {
			p.stamp = s
		}
		return tcp
	}
	return nil
}

// expects reports whether a segment is near what is to come: of others, such as a SYN-ACK that was sent for an attempt
// before, nothing is taken over (RFC 7323, section 4.3).
func (p *peer) expects(g *layers.TCP) bool {
	off := int32(g.Seq - p.ack)
	return p.ack == 0 || off > -1<<20 && off < 1<<20
}

func stampOf(tcp *layers.TCP) (uint32, error) {
	for _, o := range tcp.Options {
		if o.OptionType == layers.TCPOptionKindTimestamps && len(o.OptionData) == 8 {
			return binary.BigEndian.Uint32(o.OptionData), nil
		}
	}
	return 0, fmt.Errorf("no timestamps")
}

// option is one of TCP.
func option(kind layers.TCPOptionKind, data ...byte) layers.TCPOption {
	return layers.TCPOption{OptionType: kind, OptionLength: uint8(2 + len(data)), OptionData: data}
}

// synOptions are those of Linux.
func (p *peer) synOptions() []layers.TCPOption {
	return append([]layers.TCPOption{
		option(layers.TCPOptionKindMSS, 5, 180), option(layers.TCPOptionKindSACKPermitted), option(layers.TCPOptionKindWindowScale, 7),
	}, p.stamps()...)
}

// stamps is the option that all segments have, unless they are plain: the peer's clock and the other end's.
func (p *peer) stamps() []layers.TCPOption {
	if p.plain {
		return nil
	}
	now := uint32(time.Now().UnixMilli())
	return []layers.TCPOption{option(layers.TCPOptionKindTimestamps, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, now), p.stamp)...)}
}

// knock sends a SYN and takes the SYN-ACK.
func (p *peer) knock(payload string, more ...layers.TCPOption) {
	p.Helper()
	p.ack, p.stamp = 0, 0
	p.send(segment{flags: "S", options: append(p.synOptions(), more...), payload: payload})
	for {
		got := p.receive(synPatience)
		switch {
		case got == nil:
			p.Fatal("no SYN-ACK comes")
		case !got.SYN || !got.ACK:
			continue // of the connection before
		case got.Ack != p.seq+1:
			p.Fatalf("a SYN of %d bytes has %d bytes acknowledged", len(payload), got.Ack-p.seq-1)
		}
		p.seq, p.ack = p.seq+1, got.Seq+1
		return
	}
}

// connect makes a connection.
func (p *peer) connect() {
	p.Helper()
	p.connectHastily()
	p.awaitWindow()
}

// connectHastily makes a connection, and does not wait until the window opens.
func (p *peer) connectHastily() {
	p.Helper()
	p.knock("")
	p.send(segment{flags: ".", options: p.stamps()})
}

// awaitWindow waits, as clients do, until the window opens: SYNPROXY's SYN-ACK has none. What is sent before comes to the
// server with numbers of SYNPROXY's if it comes between the end of the server's handshake and the moment from which the kernel
// translates them (kernel net/netfilter/nf_synproxy_core.c, ipv4_synproxy_hook: nf_ct_seqadj_init comes after
// synproxy_send_server_ack), and is answered with a reset.
func (p *peer) awaitWindow() {
	p.Helper()
	if p.mode != "router" {
		return
	}
	for got := p.receive(again); got != nil && got.Window == 0; got = p.receive(again) {
		if got.RST {
			p.Fatal("the connection is reset before its window opens")
		}
	}
}

// again is how often a segment is sent for which nothing comes.
const again = 300 * time.Millisecond

// say sends text, again and again, until it comes back.
func (p *peer) say(text string) {
	p.Helper()
	p.sayWith(segment{flags: "P.", payload: text}, text)
}

// sayWith sends a segment until so much text comes back.
func (p *peer) sayWith(g segment, text string) {
	p.Helper()
	if p.isReset(g, text) {
		p.Fatalf("%q is answered with a reset", text)
	}
}

// isReset sends a segment until so much text comes back, or a reset.
func (p *peer) isReset(g segment, text string) bool {
	p.Helper()
	echo := ""
	for end := time.Now().Add(synPatience); time.Now().Before(end); {
		g.options = p.stamps()
		p.send(g)
		for got := p.receive(again); got != nil; got = p.receive(again) {
			if got.RST {
				return true
			}
			if got.Seq == p.ack {
				echo += string(got.Payload)
				p.ack += uint32(len(got.Payload))
			}
			if echo == text {
				p.seq += uint32(len(text))
				p.send(segment{flags: ".", options: p.stamps()})
				return false
			}
		}
	}
	p.Fatalf("%q comes back as %q", text, echo)
	return false
}

// wantSilence fails the test when anything comes.
func (p *peer) wantSilence(after string) {
	p.Helper()
	if got := p.receive(again); got != nil {
		p.Errorf("after %s comes %+v", after, got)
	}
}

// want is the next segment of which good says so.
func (p *peer) want(what string, good func(*layers.TCP) bool) *layers.TCP {
	p.Helper()
	for end := time.Now().Add(synPatience); time.Now().Before(end); {
		if got := p.receive(time.Until(end)); got != nil && good(got) {
			return got
		}
	}
	p.Fatalf("no %s comes", what)
	return nil
}
