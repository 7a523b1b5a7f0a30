// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// The MSS that a protection of the tests announces.
const (
	announced4, announced6 = 1460, 1440
	announcedWScale        = 7
	announcedWindow        = 64240
)

// protecting returns a program that protects all TCP ports, and drops all other packets.
func protecting(p ir.Protection, limits ...ir.Limit) *ir.Program {
	p.Service = "tcp"
	p.Ports = []ir.Range{{First: 0, Last: packet.PortUDP - 1}}
	return &ir.Program{
		Default: ir.Drop, Limits: limits, Protections: []ir.Protection{p},
		Rules: []ir.Rule{{Name: "tcp:syn", Verdict: ir.Pass, Protect: 1, Match: []ir.Match{{Field: packet.DPort, Values: p.Ports}}}},
	}
}

// always returns a protection that is active at all times.
func always() ir.Protection { return ir.Protection{Always: true, Start: -1, Stop: -1, Flows: 1000} }

// A shield is a loaded program with one protection, for services of this host. The test sets its clock.
type shield struct {
	*datapath.Program
	t     testing.TB
	slots [ir.NumOutcomes]uint32
	now   time.Duration
	wire  bool // send frames as from the wire: without a question, which would set the time
}

func loadShield(t testing.TB, program *ir.Program) *shield {
	t.Helper()
	testutil.RequireRoot(t)
	return shieldOf(t, program)
}

// shieldOf does the same as loadShield, for a test that has its own namespaces.
func shieldOf(t testing.TB, program *ir.Program) *shield {
	t.Helper()
	x, err := xdpgen.Generate(program, xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	s := &shield{Program: (&subject.Subject{Program: program}).Load(t, x), t: t, now: clock(t, unix.CLOCK_MONOTONIC)}
	for i := range s.slots {
		s.slots[i] = image.SlotRules + uint32(len(program.Rules)+i)
	}
	s.edit(image.SynKeys, func(keys []byte) { rand.Read(keys[:16]); rand.Read(keys[40:56]) })
	return s
}

// edit changes the memory of one of the program's maps.
func (s *shield) edit(name string, change func(memory []byte)) {
	s.t.Helper()
	memory, release, err := s.Memory(name)
	if err != nil {
		s.t.Fatal(err)
	}
	defer release()
	change(memory[name])
}

// rotate gives cookies a new key, as the description of struct syn_keys in bpf/flow.h requires.
func (s *shield) rotate() {
	s.edit(image.SynKeys, func(keys []byte) {
		copy(keys[16:32], keys[:16])
		binary.NativeEndian.PutUint64(keys[32:], uint64(s.now))
		rand.Read(keys[:16])
	})
}

// act is SEEN_CHARGE and SEEN_ACT of bpf/packet.h. With it, the program treats the frame of a question like a real one, at the time of the test.
const act = 2 | 8

// questionSize is the size of struct question of bpf/explain.h.
const questionSize = 24

// xdpContext is the start of struct xdp_md of the kernel's include/uapi/linux/bpf.h.
type xdpContext struct{ Data, DataEnd, DataMeta, Ifindex, Queue, Egress uint32 }

// send runs the program on a frame at the time of the test. answer is the frame after the run.
func (s *shield) send(frame []byte) (action uint32, answer []byte) {
	s.t.Helper()
	if s.wire {
		return s.run(nil, frame)
	}
	question := make([]byte, questionSize)
	binary.NativeEndian.PutUint64(question, subject.QuestionKey)
	binary.NativeEndian.PutUint64(question[8:], uint64(s.now))
	binary.NativeEndian.PutUint32(question[20:], act)
	return s.run(question, frame)
}

// run runs the program on a frame with a question in front, which may be empty.
func (s *shield) run(question, frame []byte) (action uint32, answer []byte) {
	s.t.Helper()
	in := slices.Concat(question, frame)
	options := ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+64), Repeat: 1}
	if len(question) > 0 {
		options.Context = xdpContext{Data: uint32(len(question)), DataEnd: uint32(len(in))}
	}
	action, err := s.Native().Run(&options)
	if err != nil {
		s.t.Fatal(err)
	}
	return action, options.DataOut[len(question):]
}

// sendLine does the same as send, for a packet in the notation of packet.Parse.
func (s *shield) sendLine(format string, args ...any) (action uint32, answer []byte) {
	s.t.Helper()
	return s.send(subject.FramesOf(s.t, fmt.Sprintf(format, args...))[0].Frame)
}

// counted returns the counter of each outcome.
func (s *shield) counted() (n [ir.NumOutcomes]uint64) {
	s.t.Helper()
	for i, slot := range s.slots {
		var perCPU []image.Counter
		if err := s.Map(image.Counters).Lookup(slot, &perCPU); err != nil {
			s.t.Fatal(err)
		}
		for _, c := range perCPU {
			n[i] += c.Packets
		}
	}
	return n
}

// expect runs a step, and checks which outcomes it counts. want has the form "answered 1, invalid 2".
func (s *shield) expect(what, want string, step func()) {
	s.t.Helper()
	before := s.counted()
	step()
	var got []string
	for i, n := range s.counted() {
		if n != before[i] {
			got = append(got, fmt.Sprintf("%s %d", ir.Outcome(i), n-before[i]))
		}
	}
	if got := strings.Join(got, ", "); got != want {
		s.t.Errorf("%s: counted %q, want %q", what, got, want)
	}
}

// must sends a packet, and checks the action and the counted outcomes.
func (s *shield) must(action uint32, counted, format string, args ...any) {
	s.t.Helper()
	line := fmt.Sprintf(format, args...)
	s.expect(line, counted, func() {
		if got, _ := s.sendLine("%s", line); got != action {
			s.t.Errorf("%s: XDP action %d, want %d", line, got, action)
		}
	})
}

// TestProtectRest checks packets that a protection leaves undecided, and packets that it refuses.
func TestProtectRest(t *testing.T) {
	s := loadShield(t, protecting(always()))
	s.must(xdpDrop, "", "udp 198.51.100.7:4000 > 192.0.2.1:80")
	s.must(xdpDrop, "", "tcp 198.51.100.7:4000 > 192.0.2.1:80 S frag=later")
	for _, flags := range []string{".", "SA", "S.", "R", "R.", "F", "F.", "P.", "SF", "SR", "none", "FPU"} {
		s.must(xdpDrop, "invalid 1, asked 1", "tcp 198.51.100.7:4000 > 192.0.2.1:80 %s", flags)
	}
	s.must(xdpDrop, "limited 1", "tcp 224.0.0.1:4000 > 192.0.2.1:80 S")
	s.must(xdpDrop, "invalid 1, asked 1", "tcp 198.51.100.7:4000 > 192.0.2.1:80 S doff=4")
	s.must(xdpDrop, "invalid 1, asked 1", "tcp 198.51.100.7:4000 > 192.0.2.1:80 S doff=15")
}

// TestBroadcastSources sends SYNs from broadcast addresses of the host's networks, and from adjacent addresses. SYNs from broadcast addresses must
// not be answered.
func TestBroadcastSources(t *testing.T) {
	s := loadShield(t, protecting(always()))
	broadcasts := []string{"203.0.113.255", "198.51.100.63", "10.1.255.255"}
	s.edit(image.HostEnds, func(ends []byte) {
		e := image.Ends{MACs: []net.HardwareAddr{packet.Destination()}}
		for _, a := range broadcasts {
			e.Broadcasts = append(e.Broadcasts, netip.MustParseAddr(a))
		}
		e.Write(ends)
	})
	for _, s.wire = range []bool{true, false} {
		for _, a := range broadcasts {
			before := netip.MustParseAddr(a).Prev()
			for _, options := range []string{"", " tcpopts=" + linux.options()} {
				s.must(xdpDrop, "limited 1", "tcp %s:4000 > 192.0.2.1:80 S%s", a, options)
				s.must(xdpTX, "answered 1", "tcp %s:4000 > 192.0.2.1:80 S%s", before, options)
			}
		}
	}
}

// TestProtectRefused checks that a protection does nothing while the kernel accepts no connection.
func TestProtectRefused(t *testing.T) {
	s := loadShield(t, protecting(always()))
	until := s.now + 10*time.Second
	s.edit(image.ProtectionStates, func(state []byte) { binary.NativeEndian.PutUint64(state[8:], uint64(until)) })
	s.must(xdpPass, "", "tcp 198.51.100.7:4000 > 192.0.2.1:80 S")
	s.must(xdpPass, "asked 1", "tcp 198.51.100.7:4000 > 192.0.2.1:80 .")
	s.now = until
	s.must(xdpTX, "answered 1", "tcp 198.51.100.7:4000 > 192.0.2.1:80 S")
	s.must(xdpDrop, "invalid 1, asked 1", "tcp 198.51.100.7:4000 > 192.0.2.1:80 .")
}

// automatic returns a program whose protection starts with more than 5 packets at once, and lasts while there are more than 2.
func automatic() *ir.Program {
	return protecting(ir.Protection{Start: 0, Stop: 1, Flows: 1000},
		ir.Limit{Rule: "tcp:start", Rate: 5, Per: time.Second, Burst: 5},
		ir.Limit{Rule: "tcp:stop", Rate: 2, Per: time.Second, Burst: 2})
}

// TestProtectAutomatic checks a protection that starts and ends automatically.
func TestProtectAutomatic(t *testing.T) {
	s := loadShield(t, automatic())
	syns := func(n int, action uint32, counted string) {
		t.Helper()
		for range n {
			s.must(action, counted, "tcp 198.51.100.7:4000 > 192.0.2.1:80 S")
		}
	}
	syns(5, xdpPass, "")
	syns(10, xdpTX, "answered 1")
	s.now += 9 * time.Second
	syns(1, xdpTX, "answered 1") // within the lower limit, so the protection is not renewed
	s.now += time.Second
	syns(5, xdpPass, "")
	syns(1, xdpTX, "answered 1")
	for range 5 { // above the lower limit, for longer than the protection would last without renewal
		s.now += 4 * time.Second
		syns(4, xdpTX, "answered 1")
	}
	s.now += 10 * time.Second
	syns(1, xdpPass, "")
}

// TestProtectStrangers checks that packets without a connection start a protection, and that they pass while the protection is off.
func TestProtectStrangers(t *testing.T) {
	s := loadShield(t, automatic())
	for range 5 {
		s.must(xdpPass, "asked 1", "tcp 198.51.100.7:4000 > 192.0.2.1:80 .")
	}
	for range 5 {
		s.must(xdpDrop, "invalid 1, asked 1", "tcp 198.51.100.7:4000 > 192.0.2.1:80 .")
	}
	s.must(xdpTX, "answered 1", "tcp 198.51.100.7:4000 > 192.0.2.1:80 S")
	s.now += 10 * time.Second
	s.must(xdpPass, "asked 1", "tcp 198.51.100.7:4000 > 192.0.2.1:80 .")
}

// TestProtectLimits checks several limits. Each must limit SYN-ACKs.
func TestProtectLimits(t *testing.T) {
	p := always()
	p.Limits = []int{0, 1}
	s := loadShield(t, protecting(p,
		ir.Limit{Rule: "tcp:syn", Src: &ir.Prefixes{V4: 24, V6: 64}, Rate: 3, Per: time.Second, Burst: 3, Max: 100},
		ir.Limit{Rule: "tcp:syn", Rate: 5, Per: time.Second, Burst: 5}))
	send := func(source string, n int, action uint32, counted string) {
		t.Helper()
		for range n {
			s.must(action, counted, "tcp %s > 192.0.2.1:80 S", address(source, 4000))
		}
	}
	send("198.51.100.7", 3, xdpTX, "answered 1")
	send("198.51.100.8", 3, xdpDrop, "limited 1")
	send("203.0.113.1", 2, xdpTX, "answered 1")
	send("203.0.113.1", 2, xdpDrop, "limited 1")
	s.now += 1100 * time.Millisecond
	send("198.51.100.7", 3, xdpTX, "answered 1")
}

// TestProtectBudget checks that the program does not look up connections in the kernel more often than allowed. This must not let a packet pass.
func TestProtectBudget(t *testing.T) {
	const burst, perSecond = 2001, 100_000
	s := loadShield(t, protecting(always()))
	defer testutil.OnOneCPU(t)()
	frame := subject.FramesOf(t, "tcp 198.51.100.7:4000 > 192.0.2.1:80 .")[0].Frame
	flood := func(n int) {
		for range n {
			if action, _ := s.send(frame); action != xdpDrop {
				t.Fatalf("XDP action %d, want drop", action)
			}
		}
	}
	s.expect("at once", fmt.Sprintf("invalid 3000, asked %d", burst), func() { flood(3000) })
	s.now += time.Millisecond
	s.expect("after 1 ms", fmt.Sprintf("invalid 500, asked %d", perSecond/1000), func() { flood(500) })
}

// TestProtectSockets tests with a kernel that has connections. Packets of its connections must pass. The flow table must keep the connections as long
// as they exist.
func TestProtectSockets(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		s := shieldOf(t, protecting(always()))
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		tuple := fmt.Sprintf("tcp %s > %s", client.LocalAddr(), l.Addr())
		s.must(xdpPass, "asked 1", "%s .", tuple)
		s.must(xdpPass, "", "%s .", tuple)
		s.must(xdpPass, "", "%s S", tuple) // the kernel answers this packet
		s.must(xdpDrop, "invalid 1, asked 1", "tcp %s > %s .", address(host, 9), l.Addr())

		s.must(xdpPass, "asked 1", "%s R", tuple) // the reset is forged, so the kernel is also asked about the next packet
		s.must(xdpPass, "asked 1", "%s .", tuple)
		s.now += 70 * time.Second
		s.must(xdpPass, "asked 1", "%s .", tuple)
		s.now += time.Hour
		s.must(xdpPass, "asked 1", "%s .", tuple) // once a minute the program asks whether the connection still exists
		s.must(xdpPass, "", "%s .", tuple)

		forged := shieldOf(t, protecting(always()))
		forged.wire = true
		forged.must(xdpPass, "asked 1", "%s .", tuple)
		forged.must(xdpPass, "", "%s .", tuple)
		forged.must(xdpPass, "asked 1", "%s F.", tuple) // the entry passes other segments itself, but leaves a FIN to general(), which records it
		forged.must(xdpPass, "asked 1", "%s .", tuple)

		server.Close()
		client.Close()
		after := shieldOf(t, protecting(always()))
		for range 2 { // in TIME-WAIT, which is not worth remembering
			after.must(xdpPass, "asked 1", "%s F.", tuple)
		}
	}
}
