// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// behind is an upper bound of the time by which the program's clock may lag behind CLOCK_MONOTONIC_COARSE. It is 2^21 ns and one tick of at most 10
// ms (coarse_time() of bpf/clock.h).
const behind = 25 * time.Millisecond

// stampTime is the resolution of the clock in the timestamps of answers: STAMP_SHIFT of bpf/cookie.h.
const stampTime = 1 << 32

// agree sends the program a SYN twice at the same time: as from the wire, so that the entry may answer it, and as a question, which protect()
// answers. The actions, counters and resulting frames must be the same.
func (s *shield) agree(name string, frame []byte) (action uint32) {
	s.t.Helper()
	for {
		var actions [2]uint32
		var answers [2][]byte
		var counted [2][ir.NumOutcomes]uint64
		begin := clock(s.t, unix.CLOCK_MONOTONIC_COARSE) // a frame from the wire uses the program's own clock, which lags by at most behind
		for i := range actions {
			s.wire = i == 0
			s.now = clock(s.t, unix.CLOCK_MONOTONIC_COARSE) // set after the frame from the wire, because lookups in the kernel are limited
			before := s.counted()
			actions[i], answers[i] = s.send(frame)
			counted[i] = s.counted()
			for n := range counted[i] {
				counted[i][n] -= before[n]
			}
		}
		if (begin-behind)/stampTime != s.now/stampTime {
			continue // the clock in the answers may have advanced between the two frames
		}
		if actions[0] != actions[1] || !bytes.Equal(answers[0], answers[1]) || counted[0] != counted[1] {
			s.t.Errorf("%s: the entry does %d, counts %v, and leaves\n%x\nprotect() does %d, counts %v, and leaves\n%x",
				name, actions[0], counted[0], answers[0], actions[1], counted[1], answers[1])
		}
		return actions[0]
	}
}

// windowsOptions are the options of a SYN of Windows.
const windowsOptions = "mss:1460,nop,ws:8,nop,nop,sack"

// randomOptions returns random options of a SYN in random order, with random numbers of NOPs between them.
func randomOptions(random *rand.Rand) string {
	var words []string
	for range random.IntN(5) { // 40 bytes at most
		words = append(words, []string{
			"nop", "nop", "sack", fmt.Sprint("mss:", random.IntN(1500)), fmt.Sprint("ws:", random.IntN(20)), "ts",
		}[random.IntN(6)])
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ",")
}

// TestUsualSYN compares the answers of the entry and of protect() to SYNs. It tests SYNs with every combination of options in the order of Linux, and
// SYNs with random options. It also tests SYNs that the entry answers, with each part of the options and of the frame changed.
func TestUsualSYN(t *testing.T) {
	t.Parallel()
	defer testutil.OnOneCPU(t)()
	s := loadShield(t, protecting(always()))
	s.wire = true
	s.begin(routes[0], linux, 999) // starts the use of cookies
	random := testutil.Random(t)
	for _, r := range []route{routes[0], routes[3]} {
		tuple := fmt.Sprintf("tcp %s > %s ", address(r.client, 4000), address(r.server, 80))
		for _, vlan := range []string{"", " vlan=10", " vlan=10,20"} {
			for _, o := range everySyn() {
				if !o.ecn {
					s.agree("", subject.FramesOf(t, tuple+o.flags()+" tcpopts="+o.options()+vlan)[0].Frame)
				}
			}
			usual := " tcpopts=" + linux.options() + vlan
			for _, shape := range []string{
				"S", "SP", "SU", "SEW", "SE", "S seq=4294967295", `S payload="GET /"`, "S len=1200", "S ttl=1 dscp=10", "S smac=06:00:00:00:00:01",
			} {
				line := tuple + shape + usual
				if got := s.agree(line, subject.FramesOf(t, line)[0].Frame); got != xdpTX {
					t.Errorf("%s: XDP action %d, want %d", line, got, xdpTX)
				}
			}
			group := tuple + "S smac=03:00:00:00:00:01" + usual // a SYN to a multicast group gets no answer
			if got := s.agree(group, subject.FramesOf(t, group)[0].Frame); got != xdpDrop {
				t.Errorf("%s: XDP action %d, want %d", group, got, xdpDrop)
			}
			for _, o := range []string{linux.options(), windowsOptions, "mss:1400", "none"} {
				line := tuple + "S tcpopts=" + o + vlan
				if got := s.agree(line, subject.FramesOf(t, line)[0].Frame); got != xdpTX {
					t.Errorf("%s: XDP action %d, want %d", line, got, xdpTX)
				}
				s.changed(subject.FramesOf(t, line)[0].Frame)
			}
			for range 200 {
				line := tuple + "S tcpopts=" + randomOptions(random) + vlan
				s.agree(line, subject.FramesOf(t, line)[0].Frame)
			}
		}
	}
	for _, from := range []string{"224.0.0.1", "127.0.0.1", "255.255.255.255"} {
		line := fmt.Sprintf("tcp %s:4000 > 192.0.2.1:80 S tcpopts=%s", from, linux.options())
		if got := s.agree(line, subject.FramesOf(t, line)[0].Frame); got != xdpDrop {
			t.Errorf("%s: XDP action %d, want %d", line, got, xdpDrop)
		}
	}
}

// changed compares the answers to variants of a SYN: truncated, with additional bytes at the end, and with each byte changed in turn.
func (s *shield) changed(frame []byte) {
	s.t.Helper()
	random := testutil.Random(s.t)
	for _, f := range [][]byte{frame[:len(frame)-1], append(bytes.Clone(frame), 1), append(bytes.Clone(frame), make([]byte, 40)...)} {
		s.agree(fmt.Sprintf("%d of %d bytes", len(f), len(frame)), f)
	}
	for at := range frame {
		f := bytes.Clone(frame)
		f[at] ^= 1 << random.IntN(8)
		s.agree(fmt.Sprintf("byte %d changed: %x", at, f), f)
	}
}

// TestUsualSYNKnown tests SYNs of known flows, SYNs while cookies are paused, and SYNs that exceed each of two limits.
func TestUsualSYNKnown(t *testing.T) {
	t.Parallel()
	defer testutil.OnOneCPU(t)()
	for _, r := range []route{routes[0], routes[3]} {
		p := always()
		p.Limits = []int{0, 1}
		s := loadShield(t, protecting(p, ir.Limit{Rule: "tcp:syn", Src: &ir.Prefixes{V4: 24, V6: 64}, Rate: 1, Per: day, Burst: 10, Max: 100},
			ir.Limit{Rule: "tcp:syn", Rate: 1, Per: day, Burst: 12}))
		s.now = clock(t, unix.CLOCK_MONOTONIC)
		s.wire = true
		a := s.begin(r, linux, 4000)
		s.must(xdpPass, "proved 1", "%s", a)
		again := strings.Split(a.String(), " . ")[0] + " S tcpopts=" + linux.options()
		s.both(xdpPass, "", again) // the kernel may not have this flow yet, so the SYN gets no cookie
		other := func(client string, port int) string {
			return fmt.Sprintf("tcp %s > %s S tcpopts=%s", address(client, uint16(port)), address(r.server, 80), linux.options())
		}
		for port := range 4 {
			s.both(xdpTX, "answered 1", other(r.client, 5000+port))
		}
		s.wire = true
		s.must(xdpTX, "answered 1", "%s", other(r.client, 6000))
		s.both(xdpDrop, "limited 1", other(r.client, 6001)) // the limit of ten of this prefix is used up
		s.both(xdpTX, "answered 1", other(map[bool]string{true: "203.0.113.9", false: "2001:db8:9::9"}[r.server == routes[0].server], 6002))
		s.both(xdpDrop, "limited 1", other(map[bool]string{true: "203.0.114.9", false: "2001:db8:a::9"}[r.server == routes[0].server], 6003))
	}
}

// TestUsualSYNOfEach sends SYNs to two services. Each must be answered by its own protection. Only the second protection has a limit.
func TestUsualSYNOfEach(t *testing.T) {
	t.Parallel()
	defer testutil.OnOneCPU(t)()
	limited := always()
	limited.Service, limited.Limits = "second", []int{0}
	program := protecting(always(), ir.Limit{Rule: "second:syn", Rate: 1, Per: day, Burst: 4})
	limited.Ports = []ir.Range{{First: 443, Last: 443}}
	program.Protections[0].Ports = []ir.Range{{First: 80, Last: 80}}
	program.Protections = append(program.Protections, limited)
	program.Rules = nil
	for i := range program.Protections {
		p := &program.Protections[i]
		program.Rules = append(program.Rules, ir.Rule{
			Name: p.Service + ":syn", Verdict: ir.Pass, Protect: i + 1, Match: []ir.Match{{Field: packet.DPort, Values: p.Ports}},
		})
	}
	s := loadShield(t, program)
	s.wire = true
	first := s.slots
	for _, options := range []string{linux.options(), windowsOptions} { // both SYNs are charged to the limit
		for i, port := range []uint16{80, 443} {
			for n := range s.slots {
				s.slots[n] = first[n] + uint32(i*int(ir.NumOutcomes))
			}
			line := fmt.Sprintf("tcp 198.51.100.1:4000 > 192.0.2.1:%d S tcpopts=%s", port, options)
			s.must(xdpTX, "answered 1", "%s", line) // starts the use of cookies
			s.must(xdpTX, "answered 1", "%s", line)
			if options == windowsOptions && port == 443 {
				s.must(xdpDrop, "limited 1", "%s", line)
			}
		}
	}
}
