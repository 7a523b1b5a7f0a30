// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// slotTime is the length of a time slot. A cookie is valid in its slot and in the next one.
const slotTime = 1 << image.CookieSlot * time.Nanosecond

// An ack is the packet that answers a SYN-ACK.
type ack struct {
	route
	port, server uint16
	seq, ack     uint32
	stamped      bool
	tsecr        uint32
}

func (a ack) String() string {
	options := "none"
	if a.stamped {
		options = fmt.Sprintf("0101080a00000001%08x", a.tsecr)
	}
	return fmt.Sprintf("tcp %s > %s . seq=%d ack=%d tcpopts=%s", address(a.client, a.port), address(a.route.server, a.server),
		a.seq, a.ack, options)
}

// begin sends a SYN, and returns the ack for the SYN-ACK that answers it.
func (s *shield) begin(r route, o syn, port uint16) ack {
	s.t.Helper()
	action, answer := s.sendLine("tcp %s > %s S seq=77 tcpopts=%s", address(r.client, port), address(r.server, 80), o.options())
	if action != xdpTX {
		s.t.Fatalf("a SYN: XDP action %d, want %d", action, xdpTX)
	}
	a := readSynAck(s.t, answer)
	out := ack{route: r, port: port, server: 80, seq: 78, ack: a.tcp.Seq + 1}
	out.tsecr, out.stamped = a.tsval()
	return out
}

// cookies yields SYNs for both forms of cookies, in both families.
func cookies(yield func(route, syn)) {
	small := linux
	small.tsval = -1
	for _, r := range []route{routes[0], routes[3]} {
		yield(r, linux)
		yield(r, small)
	}
}

// TestForgedBits changes each bit of each field that a cookie proves. No changed ack may be accepted.
func TestForgedBits(t *testing.T) {
	s := loadShield(t, protecting(always()))
	port := uint16(4000)
	cookies(func(r route, o syn) {
		port++
		a := s.begin(r, o, port)
		for bit := range 32 {
			for _, f := range forged(a, bit) {
				s.must(xdpDrop, "invalid 1, asked 1", "%s", f)
			}
		}
		for _, other := range []route{{client: "198.51.100.6", server: "192.0.2.1"}, {client: "198.51.100.7", server: "192.0.2.0"},
			{client: "2001:db8::6", server: "2001:db8:1::1"}, {client: "2001:db9::7", server: "2001:db8:1::1"},
			{client: "2001:db8::7", server: "2001:db8:1::"}, {client: "2001:db8::7", server: "2001:db8:2::1"}} {
			s.must(xdpDrop, "invalid 1, asked 1", "%s", with(a, func(f *ack) { f.route = other }))
		}
		s.must(xdpPass, "proved 1", "%s", a)
	})
}

// forged returns changed copies of an ack. There is one for each field that the cookie proves, with one bit of the field changed. In one more copy,
// the timestamp is removed or added.
func forged(a ack, bit int) (list []ack) {
	for _, f := range []ack{
		with(a, func(f *ack) { f.ack ^= 1 << bit }),
		with(a, func(f *ack) { f.seq ^= 1 << bit }),
		with(a, func(f *ack) { f.tsecr ^= 1 << bit }),
		with(a, func(f *ack) { f.port ^= 1 << (bit & 15) }),
		with(a, func(f *ack) { f.server ^= 1 << (bit & 15) }),
		with(a, func(f *ack) { f.stamped = !f.stamped }),
	} {
		if f != a && (f.stamped || f.tsecr == a.tsecr) {
			list = append(list, f)
		}
	}
	return list
}

func with(a ack, change func(*ack)) ack {
	change(&a)
	return a
}

// TestCookieTime checks that a cookie is valid in its slot and in the next one, and in no other. The cookie of an open connection proves no other
// connection.
func TestCookieTime(t *testing.T) {
	s := loadShield(t, protecting(always()))
	start := s.now.Truncate(slotTime)
	port := uint16(4000)
	cookies(func(r route, o syn) {
		for _, test := range []struct {
			made, back time.Duration // times of the SYN-ACK and of the ack, from the start of a slot
			valid      bool
		}{
			{0, 0, true}, {0, slotTime - 1, true}, {slotTime - 1, slotTime, true}, {0, 2*slotTime - 1, true}, {slotTime - 1, 2*slotTime - 1, true},
			{0, 2 * slotTime, false}, {slotTime - 1, 2 * slotTime, false}, {0, 3*slotTime - 1, false}, {0, 10 * slotTime, false},
			{0, (1<<16 + 1) * slotTime, false}, {slotTime, slotTime - 1, false}, {2 * slotTime, 0, false},
		} {
			port++
			s.now = start + test.made
			a := s.begin(r, o, port)
			s.now = start + test.back
			if action, _ := s.sendLine("%s", a); (action == xdpPass) != test.valid {
				t.Errorf("made at %s, back at %s: %s: XDP action %d, valid is %t", test.made, test.back, a, action, test.valid)
			}
		}
	})
}

// TestCookieRotation checks cookies that come back after the key has changed once, and after it has changed twice.
func TestCookieRotation(t *testing.T) {
	cookies(func(r route, o syn) {
		s := loadShield(t, protecting(always()))
		s.now = s.now.Truncate(slotTime) + slotTime/2
		before := s.begin(r, o, 4000)
		s.rotate()
		after := s.begin(r, o, 4001)
		s.now += slotTime
		next := s.begin(r, o, 4002)
		old := s.begin(r, o, 4003)
		for _, a := range []ack{before, after, next} {
			s.must(xdpPass, "proved 1", "%s", a)
		}
		s.now += slotTime
		s.rotate()
		s.must(xdpPass, "proved 1", "%s", old)
		s.now += slotTime
		last := s.begin(r, o, 4004)
		s.rotate()
		s.rotate()
		s.must(xdpDrop, "invalid 1, asked 1", "%s", last)
	})
}

// TestCookieAfterwards checks that cookies that are on their way when a protection ends are still accepted.
func TestCookieAfterwards(t *testing.T) {
	s := loadShield(t, automatic())
	s.now = s.now.Truncate(slotTime)
	for range 10 {
		s.sendLine("tcp 198.51.100.7:3999 > 192.0.2.1:80 S")
	}
	a, b := s.begin(routes[0], linux, 4000), s.begin(routes[0], linux, 4001)
	s.now += 2*slotTime - 1
	s.must(xdpPass, "", "tcp 198.51.100.7:3998 > 192.0.2.1:80 S") // the protection has ended
	s.must(xdpPass, "proved 1", "%s", a)
	s.now++
	s.must(xdpPass, "asked 1", "%s", b)
}

// Offsets within the acknowledgment number, in a frame without VLAN tags and without IP options.
const (
	atAck4 = 14 + 20 + 8
	atAck6 = 14 + 40 + 8
)

// randomized returns a program that writes a random byte to an offset of a frame before it passes the frame to another program.
func randomized(t testing.TB, next *ebpf.Program, at int16) *ebpf.Program {
	t.Helper()
	return before(t, next, int(at)+1, asm.FnGetPrandomU32.Call(), asm.StoreMem(asm.R7, at, asm.R0, asm.Byte))
}

// TestRandomACKs guesses one byte of the number that proves a connection. It does so a few dozen times for each of many connections. The number of
// proved connections must be the number expected by chance if exactly the 8 bits of the byte are tested. In short runs, the test guesses one byte for
// each kind of cookie, and each byte once.
func TestRandomACKs(t *testing.T) {
	const guesses = 64
	connections := 300
	if os.Getenv("FLOODWALL_LONG") != "" {
		connections *= 10
	}
	chance := 1 - math.Pow(255.0/256, guesses)
	mean, deviation := float64(connections)*chance, math.Sqrt(float64(connections)*chance*(1-chance))
	kind := 0
	cookies(func(r route, o syn) {
		kind++
		at := int16(atAck4)
		if netip.MustParseAddr(r.client).Is6() {
			at = atAck6
		}
		for place := range int16(4) {
			if (int(place)+kind)%4 > 0 && !testutil.Long() { // test each byte once, and each kind once
				continue
			}
			s := loadShield(t, protecting(always()))
			guess := randomized(t, s.Native(), at+place)
			for i := range connections {
				frame := subject.FramesOf(t, s.begin(r, o, uint16(4000+i)).String())[0].Frame
				for range guesses { // with repeat, the kernel would wait for all CPUs (bpf_prog_test_run_xdp)
					if _, err := guess.Run(&ebpf.RunOptions{Data: frame, Repeat: 1}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if proved := float64(s.counted()[ir.AckProved]); math.Abs(proved-mean) > 6*deviation {
				t.Errorf("%s, timestamps %t, byte %d: %.0f of %d connections were proved by guesses, %.0f ± %.0f ought to be",
					r.client, o.tsval >= 0, place, proved, connections, mean, 6*deviation)
			}
		}
	})
}

// TestRouterTime checks when a cookie of the kernel is valid. If the SYN had a timestamp, the ack must have one, in milliseconds, of a time at which
// the cookie can have been sent. If the SYN had none, the ack must have none. The kernel's own check ignores timestamps.
func TestRouterTime(t *testing.T) {
	p := always()
	p.Router = true
	s := loadShield(t, protecting(p))
	port := uint16(4000)
	small := linux
	small.tsval = -1
	for _, r := range []route{routes[0], routes[3]} {
		for _, test := range []struct {
			later int32
			valid bool
		}{{0, true}, {-119000, true}, {500, true}, {-181000, false}, {2000, false}, {math.MinInt32, false}} {
			port++
			a := s.begin(r, linux, port)
			a.tsecr += uint32(test.later)
			action, counted := uint32(xdpDrop), "invalid 1, asked 1"
			if test.valid {
				action, counted = xdpPass, "proved 1"
			}
			s.must(action, counted, "%s", a)
		}
		port++
		s.must(xdpPass, "proved 1", "%s", s.begin(r, small, port))
	}
}
