package compile_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/xdp"
)

// What a frame without a question is, to the program: the generated entry may decide it.
func (s *shield) pass(frame []byte) (action uint32) {
	s.t.Helper()
	action, err := s.Native().Run(&ebpf.RunOptions{Data: frame, Repeat: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	return action
}

// mayNotAsk has no CPU ask the kernel any more about packets of no connection: only the entry refuses these then.
func (s *shield) mayNotAsk() {
	s.t.Helper()
	const strangers = uint32(0)
	next := make([]uint64, ebpf.MustPossibleCPU())
	for i := range next {
		next[i] = math.MaxUint64
	}
	if err := s.Map("askers").Put(strangers, next); err != nil {
		s.t.Fatal(err)
	}
}

// ruled is how many packets and bytes the rule has counted.
func (s *shield) ruled() (sum xdp.Counter) {
	s.t.Helper()
	var perCPU []xdp.Counter
	if err := s.Map(xdp.Counters).Lookup(uint32(xdp.SlotRules), &perCPU); err != nil {
		s.t.Fatal(err)
	}
	for _, c := range perCPU {
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
	}
	return sum
}

// both gives the program a packet as from the wire and as a question that general() decides. Both must do the same, and count the same.
func (s *shield) both(want uint32, counted, line string) {
	s.t.Helper()
	frame := framesOf(s.t, line)[0].frame
	before := s.ruled()
	for _, by := range []struct {
		name string
		run  func() uint32
	}{
		{"entry", func() uint32 { return s.pass(frame) }},
		{"general", func() uint32 { action, _ := s.send(frame); return action }},
	} {
		s.expect(by.name+": "+line, counted, func() {
			if action := by.run(); action != want {
				s.t.Errorf("%s: %s: XDP action %d, want %d", by.name, line, action, want)
			}
		})
		after := s.ruled()
		if after.Packets != before.Packets+1 || after.Bytes != before.Bytes+uint64(len(frame)) {
			s.t.Errorf("%s: %s: the rule went from %v to %v, want one packet of %d bytes more", by.name, line, before, after, len(frame))
		}
		before = after
	}
}

// TestEntrySegments has the generated entry and general() judge segments of no connection, all that a cookie answers for changed in
// turn, and of connections.
func TestEntrySegments(t *testing.T) {
	const port = 4000
	defer onOneCPU(t)()
	for _, vlan := range []string{"", " vlan=10"} {
		cookies(func(r route, o syn) {
			s := loadShield(t, protecting(always()))
			s.now = clock(t, unix.CLOCK_MONOTONIC) // as without a question
			a, late := s.begin(r, o, port), s.begin(r, o, port+1000)
			s.mayNotAsk()
			for bit := 0; bit < 32; bit += 5 {
				for _, f := range forged(a, bit) {
					s.both(xdpDrop, "invalid 1", f.String()+vlan)
				}
			}
			stray := strings.Split(a.String(), " . ")[0]
			for _, shape := range []string{"P. tcpopts=mss:1460", ". doff=15", ". len=1500", "FP.", "R", "S.", "none"} {
				s.both(xdpDrop, "invalid 1", stray+" "+shape+vlan)
			}
			for i, f := range []ack{a, late} { // proved by either path, and open for both from then on
				s.expect(f.String(), "proved 1", func() {
					frame := framesOf(t, f.String()+vlan)[0].frame
					if i == 0 && s.pass(frame) != xdpPass {
						t.Errorf("entry: %s is not passed", f)
					}
					if i == 1 {
						s.send(frame)
					}
				})
				s.both(xdpPass, "", f.String()+vlan)
				s.both(xdpPass, "", strings.Split(f.String(), " . ")[0]+" P. len=900"+vlan)
			}
		})
	}
}

// TestEntryRests checks that the entry refuses nothing while cookies are off, or rest.
func TestEntryRests(t *testing.T) {
	const stray = "tcp 198.51.100.7:4000 > 192.0.2.1:80 ."
	for _, row := range []struct {
		name string
		at   int // in struct protection_state
		for_ time.Duration
		want uint32
	}{
		{"cookies end", 0, -time.Second, xdpPass}, {"cookies go on", 0, 10 * time.Second, xdpDrop}, {"the kernel refuses", 8, time.Minute, xdpPass},
	} {
		s := loadShield(t, automatic())
		s.mayNotAsk()
		s.now = clock(t, unix.CLOCK_MONOTONIC)
		s.edit(xdp.ProtectionStates, func(state []byte) { binary.NativeEndian.PutUint64(state[row.at:], uint64(s.now+row.for_)) })
		counted := fmt.Sprint(ir.AckInvalid, " 1")
		if row.want == xdpPass {
			counted = ""
		}
		s.both(row.want, counted, stray)
	}
}
