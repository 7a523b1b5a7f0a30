// SPDX-License-Identifier: Apache-2.0

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

// peer is a scripted TCP endpoint on the first client's link. The client's kernel does not have its address. A peer has one connection at a time.
type peer struct {
	*synScene
	socket   int
	eth      layers.Ethernet
	from, to netip.AddrPort
	seq, ack uint32 // the sequence and acknowledgment numbers of the next segment
	stamp    uint32 // the last timestamp from the other end
	plain    bool   // the connection has no timestamps
	shut     bool   // the window of the SYN-ACK is 0
}

// The addresses of peers.
var peers = []netip.Addr{netip.MustParseAddr("10.0.0.77"), netip.MustParseAddr("fd00::77")}

// newPeer makes a peer that connects to an address of the server from a port.
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

// open opens the packet socket in the client.
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

// mac returns the Ethernet address of a device. The parameter client is the number of a client, or -1 for the protecting host.
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

// segment describes a segment that a peer sends.
type segment struct {
	flags   string // letters of tcpdump
	options []layers.TCPOption
	payload string
	before  uint32 // the distance of its sequence number below the peer's next one
}

// send sends a segment. The peer's sequence number does not change until the segment is acknowledged.
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

// frameOf returns a frame with a TCP segment.
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
		panic(err) // cannot fail: all layers are given
	}
	return frame.Bytes()
}

// receive returns the next segment for the peer, or nil if none arrives within the time wait.
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

// expects reports whether a segment's sequence number is near the expected one. The peer takes no timestamps from other segments, such as a SYN-ACK
// for an earlier attempt (RFC 7323, section 4.3).
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

// option returns a TCP option.
func option(kind layers.TCPOptionKind, data ...byte) layers.TCPOption {
	return layers.TCPOption{OptionType: kind, OptionLength: uint8(2 + len(data)), OptionData: data}
}

// synOptions returns the options of a SYN from Linux.
func (p *peer) synOptions() []layers.TCPOption {
	return append([]layers.TCPOption{
		option(layers.TCPOptionKindMSS, 5, 180), option(layers.TCPOptionKindSACKPermitted), option(layers.TCPOptionKindWindowScale, 7),
	}, p.stamps()...)
}

// stamps returns the timestamp option of a segment. It has the peer's clock and the last timestamp from the other end. stamps returns nil if the peer
// is plain.
func (p *peer) stamps() []layers.TCPOption {
	if p.plain {
		return nil
	}
	now := uint32(time.Now().UnixMilli())
	return []layers.TCPOption{option(layers.TCPOptionKindTimestamps, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, now), p.stamp)...)}
}

// knock sends a SYN and receives the SYN-ACK.
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
			continue // a segment of the previous connection
		case got.Ack != p.seq+1:
			p.Fatalf("a SYN of %d bytes has %d bytes acknowledged", len(payload), got.Ack-p.seq-1)
		}
		p.seq, p.ack, p.shut = p.seq+1, got.Seq+1, got.Window == 0
		return
	}
}

// connect opens a connection, and waits until its window is open.
func (p *peer) connect() {
	p.Helper()
	p.connectHastily()
	p.awaitWindow()
}

// connectHastily opens a connection, but does not wait until its window is open.
func (p *peer) connectHastily() {
	p.Helper()
	p.knock("")
	p.send(segment{flags: ".", options: p.stamps()})
}

// awaitWindow waits until the window is open, as clients do, because SYNPROXY's SYN-ACK has a window of 0. Data that is sent earlier may reach the
// server with SYNPROXY's sequence numbers. The server then answers with a reset. This can happen between the end of the server's handshake and the
// moment when the kernel translates the numbers (kernel net/netfilter/nf_synproxy_core.c, ipv4_synproxy_hook: nf_ct_seqadj_init comes after
// synproxy_send_server_ack).
func (p *peer) awaitWindow() {
	p.Helper()
	if p.mode != "router" {
		return
	}
	wait := again
	if p.shut {
		wait = 5 * time.Second // not longer, because after some changes of the policy no segment opens the window
	}
	for got := p.receive(wait); got != nil && got.Window == 0; got = p.receive(wait) {
		if got.RST {
			p.Fatal("the connection is reset before its window opens")
		}
	}
}

// again is the time after which a segment without an answer is sent again.
const again = 300 * time.Millisecond

// say sends a text repeatedly until it is echoed.
func (p *peer) say(text string) {
	p.Helper()
	p.sayWith(segment{flags: "P.", payload: text}, text)
}

// sayWith sends a segment repeatedly until the given text is echoed. It fails the test after a reset.
func (p *peer) sayWith(g segment, text string) {
	p.Helper()
	if p.isReset(g, text) {
		p.Fatalf("%q is answered with a reset", text)
	}
}

// isReset sends a segment repeatedly until the given text is echoed or a reset arrives. It reports whether a reset arrived.
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

// wantSilence fails the test if a segment arrives.
func (p *peer) wantSilence(after string) {
	p.Helper()
	if got := p.receive(again); got != nil {
		p.Errorf("after %s comes %+v", after, got)
	}
}

// want returns the next segment for which good returns true.
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
