// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"context"
	"errors"
	"hash/fnv"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	mdns "github.com/miekg/dns"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// The Ethernet addresses of the ends of a link.
var hostMAC, otherMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}

// models returns all synthetic models.
func models() []*Model {
	honest := []*Model{Usual(Once), Usual(Doubling), Crowd(), World(), Scan(), NAT(), Hour(), Polls()}
	return append(honest, Attacks()...)
}

// played returns the first frames of a model with their classes: the frames that are due within a time.
func played(m *Model, seed uint64, within time.Duration) (frames [][]byte, classes []string) {
	p := m.Play(seed)
	for due, more := p.Due(); more && due < within; due, more = p.Due() {
		frame, class := p.Next(hostMAC, otherMAC)
		if frames = append(frames, bytes.Clone(frame)); class != nil {
			classes = append(classes, class.Name)
		}
	}
	return frames, classes
}

// TestSame plays each model twice with a seed, and with another one.
func TestSame(t *testing.T) {
	sum := func(m *Model, seed uint64) uint64 {
		h := fnv.New64()
		frames, _ := played(m, seed, 100*time.Millisecond)
		for _, f := range frames {
			h.Write(f)
		}
		return h.Sum64()
	}
	for _, m := range models() {
		if m.Name == "ramp" {
			continue // nothing is due so early
		}
		if first, second := sum(m, 1), sum(m, 1); first != second {
			t.Errorf("%s: two times the same seed give other frames", m.Name)
		}
		if sum(m, 1) == sum(m, 2) {
			t.Errorf("%s: another seed gives the same frames", m.Name)
		}
	}
}

// TestFrames decodes the frames with another implementation, which also computes their checksums.
func TestFrames(t *testing.T) {
	for _, m := range models() {
		frames, _ := played(m, 1, 300*time.Millisecond)
		for _, frame := range frames[:min(len(frames), 300)] {
			checkFrame(t, m.Name, frame)
		}
	}
}

// checkFrame compares a frame with a frame that another implementation makes from its parts.
func checkFrame(t *testing.T, name string, frame []byte) {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{DecodeStreamsAsDatagrams: true})
	ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	if ip == nil || p.TransportLayer() == nil || len(frame) > longestFrame {
		t.Fatalf("%s: not a packet of UDP or TCP over IPv4, or too long: %v", name, p)
	}
	parts := []gopacket.SerializableLayer{p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet), ip}
	switch l4 := p.TransportLayer().(type) {
	case *layers.UDP:
		_ = l4.SetNetworkLayerForChecksum(ip)
		parts = append(parts, l4, gopacket.Payload(l4.Payload))
	case *layers.TCP:
		_ = l4.SetNetworkLayerForChecksum(ip)
		parts = append(parts, l4, gopacket.Payload(l4.Payload))
	}
	again := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(again, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, parts...); err != nil {
		t.Fatal(err)
	}
	if want := again.Bytes(); !bytes.Equal(frame[:min(len(want), len(frame))], want) {
		t.Fatalf("%s: frame\n%x\nwant\n%x", name, frame, want)
	}
}

// TestClasses checks that no packet is of another stream's class, and that no packet of an attack is of an honest class.
func TestClasses(t *testing.T) {
	for _, m := range models() {
		all := append(m.Classes(), UsualClasses()...)
		frames, classes := played(m, 1, 100*time.Millisecond)
		for i, frame := range frames {
			p := decoded(frame)
			first := slices.IndexFunc(all, func(c Class) bool { return c.Has(p) })
			if m.Honest && (first < 0 || all[first].Name != classes[i]) || !m.Honest && first >= 0 {
				t.Fatalf("%s: %v:%d is of class %d, want %q", m.Name, p.From, p.DPort, first, classes[i])
			}
			if !HostNetwork.Contains(p.To) {
				t.Fatalf("%s: a packet is for %v", m.Name, p.To)
			}
		}
	}
}

// decoded returns the fields of a frame that classes use.
func decoded(frame []byte) *Packet {
	d := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: true})
	ip := d.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	p := &Packet{Proto: lab.Proto(ip.Protocol)}
	p.From, p.To = addrOf(ip.SrcIP), addrOf(ip.DstIP)
	switch l4 := d.TransportLayer().(type) {
	case *layers.UDP:
		p.DPort = uint16(l4.DstPort)
	case *layers.TCP:
		p.DPort = uint16(l4.DstPort)
	}
	return p
}

// TestRates counts the packets that are due.
func TestRates(t *testing.T) {
	for _, tt := range []struct {
		model  *Model
		within time.Duration
		want   float64
	}{
		{Usual(Once), 5 * time.Second, 5 * usualUDP},
		{Usual(Doubling), 20 * time.Second, 20 * usualUDP / math.Ln2}, // the integral of 2^(t/20)
		{Crowd(), time.Second, crowdGame + crowdDNS},
		{named(t, "ntp"), time.Second, AttackRate},
		{named(t, "turns"), 10 * time.Second, 10 * AttackRate},
		{named(t, "pulses"), 30 * time.Second, 10 * AttackRate},
		{named(t, "ramp"), 6 * time.Second, AttackRate * 6 * 6 / 60 / 2},
		{named(t, "small"), time.Second, 2000},
	} {
		frames, _ := played(tt.model, 1, tt.within)
		if got := float64(len(frames)); math.Abs(got-tt.want) > 0.02*tt.want {
			t.Errorf("%s: %.0f frames in %v, want %.0f", tt.model.Name, got, tt.within, tt.want)
		}
	}
}

// named returns the attack of a name.
func named(t *testing.T, name string) *Model {
	t.Helper()
	list := Attacks()
	i := slices.IndexFunc(list, func(m *Model) bool { return m.Name == name })
	if i < 0 {
		t.Fatalf("no attack %s", name)
	}
	return list[i]
}

// TestQueries decodes the queries of honest clients with another implementation.
func TestQueries(t *testing.T) {
	asked := 0
	frames, classes := played(Usual(Once), 1, time.Second)
	for i, frame := range frames {
		if classes[i] != "dns" {
			continue
		}
		asked++
		var m mdns.Msg
		if err := m.Unpack(frame[etherHeader+ipHeader+udpHeader:]); err != nil || m.Response || len(m.Question) != 1 {
			t.Fatalf("query %x: %v, %v", frame, m, err)
		}
	}
	if asked < dnsRate/2 {
		t.Errorf("%d queries", asked)
	}
}

// TestRead reads captures in both formats. Each has a truncated packet, one that is not IPv4, and one that is not of the attack.
func TestRead(t *testing.T) {
	frames, _ := played(named(t, "syn"), 1, time.Millisecond)
	others, _ := played(named(t, "ntp"), 1, time.Millisecond)
	whole := frames[0]
	arp := append(append(bytes.Clone(hostMAC), otherMAC...), make([]byte, 46)...)
	arp[12], arp[13] = 8, 6
	for _, ng := range []bool{false, true} {
		dir := t.TempDir()
		writeCapture(t, filepath.Join(dir, lab.Recordings[0].File), ng, whole, arp, others[0], whole[:len(whole)-4])
		m := Recordings()[0]
		if err := m.Read(dir); err != nil {
			t.Fatal(err)
		}
		if len(m.Recorded) != 2 || len(m.Recorded[1].Bytes) != len(whole) || m.Recorded[1].At <= 0 {
			t.Fatalf("pcapng %t: %d packets", ng, len(m.Recorded))
		}
		again, _ := played(m, 1, time.Second*3/AttackRate)
		if len(again) != 3 {
			t.Errorf("%d frames are due, want 3", len(again))
		}
		for _, frame := range again {
			checkFrame(t, "recorded", frame)
			if to := decoded(frame).To; to != Host {
				t.Errorf("a packet is for %v", to)
			}
		}
	}
	if err := Recordings()[1].Read(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a capture: %v", err)
	}
}

// writeCapture writes frames of other hosts, one per millisecond. The last one is truncated.
func writeCapture(t *testing.T, file string, ng bool, frames ...[]byte) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := pcapgo.NewWriter(f)
	put, flush := write.WritePacket, func() error { return nil }
	if ng {
		w, err := pcapgo.NewNgWriter(f, layers.LinkTypeEthernet)
		if err != nil {
			t.Fatal(err)
		}
		put, flush = w.WritePacket, w.Flush
	} else if err := write.WriteFileHeader(2000, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for i, frame := range frames {
		info := gopacket.CaptureInfo{Timestamp: time.Unix(1, int64(i)*1e6), CaptureLength: len(frame), Length: max(len(frame), len(frames[0]))}
		if err := put(info, frame); err != nil {
			t.Fatal(err)
		}
	}
	if err := flush(); err != nil {
		t.Fatal(err)
	}
}

// TestSend sends frames over a link, and receives them with a socket.
func TestSend(t *testing.T) {
	testutil.RequireRoot(t)
	err := lab.Run(t.Context(), func(ctx context.Context, l *lab.Lab) error {
		a, err := l.Host("a")
		if err != nil {
			return err
		}
		b, err := l.Host("b")
		if err != nil {
			return err
		}
		out, in, err := l.Connect(a, b, lab.LinkOptions{
			A: lab.EndOptions{Addrs: lab.ParseAddrs("10.1.0.1/30"), Queue: true}, B: lab.EndOptions{Addrs: lab.ParseAddrs("10.1.0.2/30")},
		})
		if err == nil {
			err = b.Sysctl("ipv4/conf/all/rp_filter", "0")
		}
		if err == nil {
			err = b.Own(HostNetwork)
		}
		if err == nil {
			err = b.Route(UsualClients, out.Addrs[0].Addr(), in)
		}
		if err != nil {
			return err
		}
		var c *net.UDPConn
		err = b.Do(func() error {
			c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: Host.AsSlice(), Port: Small})
			return err
		})
		if err != nil {
			return err
		}
		defer c.Close()
		sent, err := Send(ctx, out, Usual(Once).Play(1), time.Now(), 300*time.Millisecond)
		if err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		payload := make([]byte, 100)
		n, from, err := c.ReadFromUDPAddrPort(payload)
		if err != nil {
			return err
		}
		if !UsualClients.Contains(from.Addr()) || n != 24 || sent.By["small"] == 0 || sent.Frames < 300*usualUDP/1000/2 || sent.First.IsZero() {
			t.Errorf("%d bytes from %v; sent %+v", n, from, sent)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWithin draws addresses of networks of all sizes.
func TestWithin(t *testing.T) {
	got := map[string]bool{}
	for _, m := range []*Model{NAT(), Crowd()} {
		frames, _ := played(m, 1, 50*time.Millisecond)
		for _, f := range frames {
			got[decoded(f).From.String()] = true
		}
	}
	delete(got, nat.String())
	if len(got) < 100 || got["45.83.12.0"] || got["45.83.12.255"] {
		t.Errorf("clients %v", got)
	}
}

func addrOf(ip net.IP) netip.Addr { return netip.AddrFrom4([4]byte(ip.To4())) }
