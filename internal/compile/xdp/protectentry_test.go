// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// mayNotAsk uses up the lookups in the kernel of all CPUs. After that, only the entry refuses packets without a connection.
func (s *shield) mayNotAsk() {
	s.t.Helper()
	next := make([]uint64, ebpf.MustPossibleCPU())
	for i := range next {
		next[i] = math.MaxUint64
	}
	if err := s.Map("askers").Put(uint32(image.AskStranger), next); err != nil {
		s.t.Fatal(err)
	}
}

// ruled returns the number of packets and bytes that the rule has counted.
func (s *shield) ruled() (sum image.Counter) {
	s.t.Helper()
	var perCPU []image.Counter
	if err := s.Map(image.Counters).Lookup(uint32(image.SlotRules), &perCPU); err != nil {
		s.t.Fatal(err)
	}
	for _, c := range perCPU {
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
	}
	return sum
}

// both sends the program a packet as from the wire, and the same packet as a question, which general() decides. The actions and counters must be the
// same.
func (s *shield) both(want uint32, counted, line string) {
	s.t.Helper()
	frame := subject.FramesOf(s.t, line)[0].Frame
	before := s.ruled()
	for _, s.wire = range []bool{true, false} {
		s.now = clock(s.t, unix.CLOCK_MONOTONIC_COARSE) // set after the packet from the wire, because a clock that is set back by 20 ms uses up lookups
		s.expect(fmt.Sprintf("%s, wire %t", line, s.wire), counted, func() {
			if action, _ := s.send(frame); action != want {
				s.t.Errorf("%s, wire %t: XDP action %d, want %d", line, s.wire, action, want)
			}
		})
		after := s.ruled()
		if after.Packets != before.Packets+1 || after.Bytes != before.Bytes+uint64(len(frame)) {
			s.t.Errorf("%s, wire %t: the rule went from %v to %v, want one packet of %d bytes more", line, s.wire, before, after, len(frame))
		}
		before = after
	}
}

// TestEntrySegments compares the decisions of the generated entry and of general() about segments with and without a connection. Each field that a
// cookie proves is changed in turn.
func TestEntrySegments(t *testing.T) {
	const port = 4000
	defer testutil.OnOneCPU(t)()
	for tag, vlan := range []string{"", " vlan=10"} {
		kind := 0
		cookies(func(r route, o syn) {
			if kind++; kind/2%2 != tag && !testutil.Long() { // in short runs, each route and each kind of options is tested either with a tag or without
				return
			}
			s := loadShield(t, protecting(always()))
			s.now = clock(t, unix.CLOCK_MONOTONIC) // the clock of frames without a question
			s.wire = true
			a := s.begin(r, o, port)
			s.wire = false
			late := s.begin(r, o, port+1000)
			s.mayNotAsk()
			for bit := 0; bit < 32; bit += 5 {
				for _, f := range forged(a, bit) {
					s.both(xdpDrop, "invalid 1", f.String()+vlan)
				}
			}
			stray := strings.Split(a.String(), " . ")[0]
			s.both(xdpTX, "answered 1", stray+" S tcpopts="+o.options()+vlan)
			s.both(xdpTX, "answered 1", stray+" S"+vlan)
			for _, shape := range []string{"P. tcpopts=mss:1460", ". doff=15", ". len=1500", "FP.", "R", "S.", "none"} {
				s.both(xdpDrop, "invalid 1", stray+" "+shape+vlan)
			}
			for i, f := range []ack{a, late} { // each path proves one connection, which is then open for both paths
				s.wire = i == 0
				s.must(xdpPass, "proved 1", "%s%s", f, vlan)
				s.both(xdpPass, "", f.String()+vlan)
				s.both(xdpPass, "", strings.Split(f.String(), " . ")[0]+" P. len=900"+vlan)
			}
		})
	}
}

// TestEntryNotes sends ACKs with cookies from the wire while the note of the sent cookies is old or missing. Without a note, the entry must refuse
// every segment without a flow, even if its cookie is valid. With a note, it must check the cookie. A note must be valid as long as its cookie is.
func TestEntryNotes(t *testing.T) {
	const ever = image.SentEver
	defer testutil.OnOneCPU(t)()
	for _, r := range []route{routes[0], routes[3]} {
		s := loadShield(t, protecting(always()))
		s.now = clock(t, unix.CLOCK_MONOTONIC)
		s.wire = true
		slot := byte(s.now / slotTime) // or the next slot at the end of the test; no row depends on that
		for i, row := range []struct {
			note  byte
			known bool
		}{
			{ever | slot, true}, {ever | (slot - 1), true}, {ever | (slot - 3), false}, {ever | (slot + 3), false},
			{ever | (slot - 100), false}, {0, false},
		} {
			a := s.begin(r, linux, uint16(4000+i))
			s.mayNotAsk()
			forged := with(a, func(f *ack) { f.ack++ })
			s.edit(image.CookiesSent, func(notes []byte) {
				for i := range notes {
					notes[i] = row.note
				}
			})
			s.must(xdpDrop, "invalid 1", "%s", forged)
			if row.known {
				s.must(xdpPass, "proved 1", "%s", a)
			} else {
				s.must(xdpDrop, "invalid 1", "%s", a)
			}
		}
	}
}

// TestEntryRests checks that the entry refuses nothing while cookies are off or paused. It tests a program with one protection, and the second of two
// protections.
func TestEntryRests(t *testing.T) {
	const stray = "tcp 198.51.100.7:4000 > 192.0.2.1:80 ."
	for _, row := range []struct {
		name            string
		active, refused time.Duration // end times, as in struct protection_state
		want            uint32
	}{
		{"cookies end", -time.Second, 0, xdpPass}, {"cookies go on", 10 * time.Second, 0, xdpDrop},
		{"the kernel refuses", 0, time.Minute, xdpPass}, {"the kernel refuses what cookies let pass", 10 * time.Second, time.Minute, xdpPass},
		{"the kernel refuses no more", 10 * time.Second, -time.Second, xdpDrop},
	} {
		for before := range 2 {
			program := automatic()
			for range before {
				program.Protections = append([]ir.Protection{{Service: "other", Always: true, Start: -1, Stop: -1}}, program.Protections...)
				program.Rules[0].Protect++
			}
			s := loadShield(t, program)
			for i := range s.slots {
				s.slots[i] += uint32(before) * uint32(ir.NumOutcomes)
			}
			s.mayNotAsk()
			s.now = clock(t, unix.CLOCK_MONOTONIC)
			s.edit(image.ProtectionStates, func(states []byte) {
				for at, until := range []time.Duration{row.active, row.refused} {
					if until != 0 {
						binary.NativeEndian.PutUint64(states[before*image.ProtectionStateSize+8*at:], uint64(s.now+until))
					}
				}
			})
			counted := fmt.Sprint(ir.AckInvalid, " 1")
			if row.want == xdpPass {
				counted = ""
			}
			s.both(row.want, counted, stray)
			if row.active <= 0 { // the next stray packets are a flood
				continue
			}
			s.wire = true
			for range 200 { // in quick succession, because the program reads the clock of the entry once a tick
				if action, _ := s.sendLine(stray); action != row.want {
					t.Fatalf("%s, protection %d: XDP action %d, want %d", row.name, before, action, row.want)
				}
			}
		}
	}
}

// TestEntryLimited checks a limit before a protection. The entry decides both, and charges each packet once.
func TestEntryLimited(t *testing.T) {
	const burst, packets = 20, 30
	program := protecting(always(), ir.Limit{Rule: "limit", Src: &ir.Prefixes{V4: 32, V6: 128}, Rate: 1, Per: day, Burst: burst, Max: 100})
	program.Rules = append([]ir.Rule{{Name: "limit", Verdict: ir.Drop, Over: []int{0}}}, program.Rules...)
	s := loadShield(t, program)
	for _, s.wire = range []bool{true, false} {
		for _, r := range []route{routes[0], routes[3]} {
			answered := 0
			for i := range packets {
				line := fmt.Sprintf("tcp %s > %s S", address(r.client, uint16(4000+i)), address(r.server, 80))
				if action, _ := s.sendLine("%s", line); action == xdpTX {
					answered++
				}
			}
			if want := map[bool]int{true: burst, false: 0}[s.wire]; answered != want { // general() finds the limit used up
				t.Errorf("%s, wire %t: %d of %d SYNs are answered, want %d", r.client, s.wire, answered, packets, want)
			}
		}
	}
}
