// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
)

// cut reports whether the program for outgoing packets drops a frame.
func (g *guarded) cut(t testing.TB, frame []byte) bool {
	t.Helper()
	const next, drop = 0xffffffff, 2 // TCX_NEXT and TCX_DROP of linux/bpf.h
	got, _, err := g.Egress().Test(frame)
	if err != nil || got != next && got != drop {
		t.Fatalf("what leaves gets %d, %v", got, err)
	}
	return got == drop
}

// cuts returns the number of responses that were counted as above the limit.
func (g *guarded) cuts(t testing.TB) uint64 {
	t.Helper()
	all, err := g.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return all[g.slot].Packets
}

// perNet returns a limit of responses that allows only its burst during a test: a number of bytes to each /24 or /56. The burst has half a byte more,
// so that time and rounding do not affect a response that is exactly within the limit.
func perNet(bytes uint64) ir.Limit {
	return ir.Limit{Rule: "dns", Rate: 100, Per: 24 * time.Hour, Bits: true, Burst: 8*bytes + 4, Dst: &ir.Prefixes{V4: 24, V6: 56}, Max: 1000}
}

// TestResponses sends random frames through the program for outgoing packets. The program must drop exactly the responses that are above the limit
// according to ir.Limiter.
func TestResponses(t *testing.T) {
	r, _ := subject.Seeded(t)
	for _, observe := range []bool{false, true} {
		t.Run(fmt.Sprintf("observe %t", observe), func(t *testing.T) { responses(t, r, observe) })
	}
}

func responses(t *testing.T, r *rand.Rand, observe bool) {
	program := guarding(ir.Guard{Observe: observe}, perNet(25_000))
	p := loadGuard(t, program)
	limiter := ir.NewLimiter(program)
	var over, within uint64
	for range 10_000 {
		line, guarded := randomResponse(r)
		frame := subject.FramesOf(t, line)[0].Frame
		pkt := packet.Decode(frame)
		want := guarded && limiter.Over(0, &pkt, time.Hour)
		if got := p.cut(t, frame); got != (want && !observe) {
			t.Fatalf("%s: cut is %t, and it is above the limit: %t", line, got, want)
		}
		switch {
		case want:
			over++
		case guarded:
			within++
		}
	}
	if got := p.cuts(t); got != over {
		t.Errorf("%d are counted, want %d", got, over)
	}
	if over < 1000 || within < 100 {
		t.Errorf("%d above the limit, %d within: the test says little", over, within)
	}
}

// randomResponse describes an outgoing packet to one of some networks, and reports whether the guard must check it.
func randomResponse(r *rand.Rand) (line string, guarded bool) {
	to, from := fmt.Sprintf("198.51.%d.%d", 100+r.IntN(8), 1+r.IntN(250)), "192.0.2.53"
	if r.IntN(2) == 0 {
		to, from = fmt.Sprintf("2001:db8:0:%x%02x::%x", r.IntN(8), r.IntN(256), r.IntN(65536)), "2001:db8:ff::53"
	}
	proto, sport, tags := "udp", 53, ""
	switch r.IntN(8) {
	case 0:
		proto = "tcp"
	case 1:
		sport = []int{52, 54, 5353, 0}[r.IntN(4)]
	}
	if r.IntN(4) == 0 {
		tags = []string{" vlan=7", " vlan=7,8"}[r.IntN(2)]
	}
	line = fmt.Sprintf("%s %s > %s len=%d%s", proto, address(from, uint16(sport)), address(to, uint16(r.IntN(65536))), 100+r.IntN(1400), tags)
	switch r.IntN(16) {
	case 0:
		return line + " frag=first", proto == "udp" && sport == 53
	case 1:
		return line + " frag=later", false
	}
	return line, proto == "udp" && sport == 53
}

// TestFragmentsCharged sends a response in two fragments. The first fragment must be charged with the length of the whole datagram.
func TestFragmentsCharged(t *testing.T) {
	p := loadGuard(t, guarding(ir.Guard{}, perNet(4028)))
	first := subject.FramesOf(t, "udp 192.0.2.53:53 > 198.51.100.7:1 len=1500 frag=first")[0].Frame
	binary.BigEndian.PutUint16(first[14+20+4:], 4008) // of UDP: 4028 bytes with the IP header
	for i, want := range []bool{false, true} {
		if got := p.cut(t, first); got != want {
			t.Errorf("first fragment %d: cut is %t", i+1, got)
		}
	}
	if p.cut(t, subject.FramesOf(t, "udp 192.0.2.53:53 > 198.51.100.7:1 len=1500 frag=later")[0].Frame) {
		t.Error("a later fragment is cut, which does not say whose it is")
	}
}

const verifyFor = 100 * time.Second

// TestVerifiedByTCP sends segments out, and checks which of them verify their client.
func TestVerifiedByTCP(t *testing.T) {
	p := loadGuard(t, guarding(ir.Guard{Verify: verifyFor}))
	for _, test := range []struct {
		segment  string
		verified bool
	}{
		{"tcp 192.0.2.53:53 > 198.51.100.7:4000 PA len=100", true},
		{"tcp 192.0.2.53:53 > 198.51.100.7:4000 FA len=100", true},
		{"tcp 192.0.2.53:53 > 198.51.100.7:4000 A len=41", true},
		{"tcp 192.0.2.53:53 > 198.51.100.7:4000 PA len=100 vlan=7", true},
		{"tcp 192.0.2.53:53 > 198.51.100.7:4000 PA len=100 vlan=7,8", true},
		{"tcp [2001:db8::53]:53 > [2001:db8:1::7]:4000 PA len=100", true},
		{"tcp 192.0.2.53:53 > 198.51.100.7:4000 A len=40", false}, // no data
		{"tcp 192.0.2.53:53 > 198.51.100.7:4000 SA len=100", false},
		{"tcp 192.0.2.53:53 > 198.51.100.7:4000 R len=100", false},
		{"tcp 192.0.2.53:53 > 198.51.100.7:4000 RA len=100", false},
		{"tcp 192.0.2.53:54 > 198.51.100.7:4000 PA len=100", false},
		{"tcp 192.0.2.53:5300 > 198.51.100.7:53 PA len=100", false},
		{"udp 192.0.2.53:53 > 198.51.100.7:4000 len=100", false},
		{"tcp [2001:db8::53]:53 > [2001:db8:1::7]:4000 A len=60", false},
		{"tcp 192.0.2.53:53 > 198.51.100.7:4000 PA len=100 frag=later", false},
	} {
		forget(t, p.Map(image.Verified))
		frame := subject.FramesOf(t, test.segment)[0].Frame
		client := packet.Decode(frame).Dst.String()
		if p.verified(t, query(client, "00"), 0) {
			t.Errorf("%s: verified before", test.segment)
		}
		frame = append(frame, 0, 0, 0, 0, 0, 0) // padding is not data
		if p.cut(t, frame) {
			t.Errorf("%s: cut", test.segment)
		}
		if got := p.verified(t, query(client, "00"), 0); got != test.verified {
			t.Errorf("%s: verified is %t", test.segment, got)
		}
	}
}

// forget removes all verified clients.
func forget(t *testing.T, m *ebpf.Map) {
	t.Helper()
	var client [16]byte
	for m.NextKey(nil, &client) == nil {
		if err := m.Delete(client); err != nil {
			t.Fatal(err)
		}
	}
}

// TestVerifiedPrefix verifies one client. It then checks nearby addresses, other times and other ports.
func TestVerifiedPrefix(t *testing.T) {
	program := guarding(ir.Guard{Verify: verifyFor})
	everyPort := ir.Match{Field: packet.DPort, Values: []ir.Range{{First: packet.PortUDP, Last: packet.PortNone - 1}}}
	program.Rules[0].Match[0] = everyPort
	p := loadGuard(t, program)
	for _, segment := range []string{"tcp 192.0.2.53:53 > 198.51.100.7:4000 PA len=100", "tcp [2001:db8::53]:53 > [2001:db8:1::7]:4000 PA len=100"} {
		p.cut(t, subject.FramesOf(t, segment)[0].Frame)
	}
	for client, want := range map[string]bool{
		"198.51.100.7": true, "198.51.100.6": false, "198.51.101.7": false,
		"2001:db8:1::7": true, "2001:db8:1::8": true, "2001:db8:1:0:ffff::": true, "2001:db8:1:1::7": false,
		"::ffff:198.51.100.7": false,
	} {
		if got := p.verified(t, query(client, "00"), 0); got != want {
			t.Errorf("%s: verified is %t", client, got)
		}
	}
	for port, want := range map[uint16]bool{53: true, 54: false} {
		line := fmt.Sprintf("udp 198.51.100.7:1 > %s dns=A,example.com", netip.AddrPortFrom(netip.MustParseAddr("192.0.2.53"), port))
		if got := p.verified(t, line, 0); got != want {
			t.Errorf("port %d: verified is %t", port, got)
		}
	}
	now := clock(t, unix.CLOCK_MONOTONIC)
	for after, want := range map[time.Duration]bool{verifyFor - 2*time.Second: true, verifyFor + time.Second: false, 1000 * time.Hour: false} {
		if got := p.verified(t, query("198.51.100.7", "00"), now+after); got != want {
			t.Errorf("%v later: verified is %t", after, got)
		}
	}
	if got := loadGuard(t, guarding(ir.Guard{})); got.Egress() != nil {
		t.Error("a guard that verifies nobody and limits nothing looks at what leaves")
	}
}

// TestVerifiedWrites checks clients at several points of their verified time. The program must renew that time only in its second half.
func TestVerifiedWrites(t *testing.T) {
	p := loadGuard(t, guarding(ir.Guard{Verify: verifyFor}))
	segment := subject.FramesOf(t, "tcp 192.0.2.53:53 > 198.51.100.7:4000 PA len=100")[0].Frame
	p.cut(t, segment)
	m := p.Map(image.Verified)
	var client [16]byte
	var full uint32
	if entries := m.Iterate(); !entries.Next(&client, &full) {
		t.Fatal("nobody is verified")
	}
	for left, fresh := range map[uint32]bool{0: true, 20: true, 48: true, 55: false, 99: false} {
		was := full - uint32(verifyFor/time.Second) + left
		if err := m.Update(client, was, ebpf.UpdateExist); err != nil {
			t.Fatal(err)
		}
		p.cut(t, segment)
		var got uint32
		if err := m.Lookup(client, &got); err != nil || (got != was) != fresh || fresh && got-full > 5 {
			t.Errorf("%d s were left, and it is %d s, %v", left, got-full+uint32(verifyFor/time.Second), err)
		}
	}
}

func TestGuardErrors(t *testing.T) {
	many := guarding(ir.Guard{})
	for range 255 {
		many.Guards = append(many.Guards, many.Guards[0])
	}
	for want, program := range map[string]*ir.Program{
		"256 services have a guard, at most 255 can":                                                many,
		`service "dns" has 3 secrets of cookies, at most 2 fit: the present one and the one before`: guarding(ir.Guard{Secrets: make([][16]byte, 3)}),
	} {
		if _, err := xdpgen.Generate(program, xdpgen.Options{}); err == nil || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}
