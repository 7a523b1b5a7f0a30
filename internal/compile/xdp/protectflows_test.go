package xdp_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestFlows has more connections than the table holds: those seen last stay, and those that go on.
func TestFlows(t *testing.T) {
	p := always()
	p.Flows = 1 // the least table there is, of 512
	s := loadShield(t, protecting(p))
	known := func(port int) bool {
		t.Helper()
		action, _ := s.sendLine("tcp 198.51.100.7:%d > 192.0.2.1:80 P.", port)
		return action == xdpPass
	}
	const first, last = 1000, 4000
	for port := first; port < last; port++ {
		a := s.begin(routes[0], linux, uint16(port))
		s.must(xdpPass, "proved 1", "%s", a)
		if port == first {
			s.establish()
		}
		s.now += 20 * time.Millisecond // all within a minute, after which the kernel would be asked
		if port%100 == 0 && !known(first) {
			t.Fatalf("a connection that goes on is forgotten when %d have come", port-first)
		}
	}
	n := 0
	for port := first + 1; port < last; port++ {
		if known(port) {
			n++
		} else if port >= last-64 {
			t.Errorf("the connection before the last %d is forgotten", last-1-port)
		}
	}
	if n < 500 || n > 512 {
		t.Errorf("%d connections are known, want about 512", n)
	}
}

// States of flows, enum flow_state of bpf/flow.h.
const (
	flowProved      = 1
	flowEstablished = 2
	flowClosing     = 3
)

// establish has the kernel begin all connections that are proved, as the program behind XDP notes it.
func (s *shield) establish() {
	s.t.Helper()
	s.restate(flowProved, flowEstablished)
}

// finish has all open connections close, as the program notes it of those that the kernel has.
func (s *shield) finish() {
	s.t.Helper()
	s.restate(flowEstablished, flowClosing)
}

// restate gives all flows of one state another.
func (s *shield) restate(from, to uint64) {
	s.t.Helper()
	s.edit(image.Flows, func(flows []byte) {
		for i := 0; i < len(flows); i += 8 {
			word := binary.NativeEndian.Uint64(flows[i:])
			if word>>24&7 == from {
				binary.NativeEndian.PutUint64(flows[i:], word+(to-from)<<24)
			}
		}
	})
}

// TestFlowsUntaken has connections begin that the kernel never takes: they are remembered for two minutes only, and however
// many there are, none takes the place of a connection that the kernel has.
func TestFlowsUntaken(t *testing.T) {
	p := always()
	p.Flows = 1 // the least table there is, of 512
	s := loadShield(t, protecting(p))
	for port := range uint16(50) {
		s.must(xdpPass, "proved 1", "%s", s.begin(routes[3], linux, port+1))
	}
	s.establish()
	for port := range uint16(3000) {
		s.must(xdpPass, "proved 1", "%s", s.begin(routes[0], linux, port+1))
	}
	for port := range 50 {
		s.must(xdpPass, "", "tcp %s > %s P.", address(routes[3].client, uint16(port+1)), address(routes[3].server, 80))
	}
	s.must(xdpPass, "", "tcp 198.51.100.7:3000 > 192.0.2.1:80 P.")
	s.now += 129 * time.Second
	s.must(xdpDrop, "invalid 1, asked 1", "tcp 198.51.100.7:3000 > 192.0.2.1:80 P.")
}

// TestFlowsDisplaced has one network open more connections than the table holds, all of which the kernel takes. It displaces
// no more of those of others than its limit says, and none that last while there are others.
func TestFlowsDisplaced(t *testing.T) {
	p := always()
	p.Flows = 1
	const displaced = 20
	s := loadShield(t, protecting(p, ir.Limit{Rule: "tcp:displace", Rate: 1, Per: time.Hour, Burst: displaced, Src: &ir.Prefixes{V4: 24, V6: 48}}))
	const lasting, others = 50, 100
	remembered := func(ports ...int) (n int) {
		for port := ports[0]; port < ports[1]; port++ {
			if action, _ := s.sendLine("tcp %s > %s P.", address(routes[3].client, uint16(port)), address(routes[3].server, 80)); action == xdpPass {
				n++
			}
		}
		return n
	}
	for port := 1; port <= lasting+others; port++ {
		s.must(xdpPass, "proved 1", "%s", s.begin(routes[3], linux, uint16(port)))
		s.establish()
		if port == lasting {
			s.edit(image.Flows, func(flows []byte) {
				for i := 0; i < len(flows); i += 8 {
					if word := binary.NativeEndian.Uint64(flows[i:]); word != 0 {
						binary.NativeEndian.PutUint64(flows[i:], word|6<<24) // FLOW_LASTING of bpf/flow.h
					}
				}
			})
		}
	}
	// With some keys of the hash the others fill a bucket themselves, and one of them is displaced already.
	before := remembered(lasting+1, lasting+others+1)
	if before < others-2 {
		t.Errorf("%d of %d others are remembered before the table is full", before, others)
	}
	s.now += time.Second
	refused := 0
	for port := range uint16(3000) {
		if action, _ := s.sendLine("%s", s.begin(routes[0], linux, port+1).String()); action != xdpPass {
			refused++
		}
		s.establish()
	}
	if n := remembered(1, lasting+1); n != lasting {
		t.Errorf("%d of %d connections that last are remembered", n, lasting)
	}
	if n := remembered(lasting+1, lasting+others+1); n < before-displaced {
		t.Errorf("%d of %d others are remembered, want at least %d", n, before, before-displaced)
	}
	if refused < 2000 {
		t.Errorf("%d connections of the network that displaces others are refused", refused)
	}
}

// TestFlowsReset has connections reset: one that was only proved is forgotten at once, one that is closing when it was
// silent for two minutes, even when nobody has looked for another.
func TestFlowsReset(t *testing.T) {
	s := loadShield(t, protecting(always()))
	s.must(xdpPass, "proved 1", "%s", s.begin(routes[0], linux, 1000))
	s.must(xdpPass, "", "tcp 198.51.100.7:1000 > 192.0.2.1:80 R")
	s.must(xdpDrop, "invalid 1, asked 1", "tcp 198.51.100.7:1000 > 192.0.2.1:80 .")
	s.must(xdpPass, "proved 1", "%s", s.begin(routes[0], linux, 1001))
	s.establish()
	s.finish()
	s.must(xdpPass, "", "tcp 198.51.100.7:1001 > 192.0.2.1:80 .")
	s.now += 130 * time.Second
	s.must(xdpDrop, "invalid 1, asked 1", "tcp 198.51.100.7:1001 > 192.0.2.1:80 .")
}

// TestFlowsReopen has SYNs of known connections come beside a flood of ACKs, and more of them than the kernel can bear:
// then only those of connections that are over get a cookie, and their ACK counts.
func TestFlowsReopen(t *testing.T) {
	s := loadShield(t, protecting(always()))
	defer testutil.OnOneCPU(t)()
	for _, port := range []uint16{1001, 1000} {
		s.must(xdpPass, "proved 1", "%s", s.begin(routes[0], linux, port))
		s.finish()
		s.establish()
	}
	forged := subject.FramesOf(t, "tcp 203.0.113.7:4000 > 192.0.2.1:80 .")[0].Frame
	for range 3000 {
		s.send(forged)
	}
	syn := subject.FramesOf(t, "tcp 198.51.100.7:1000 > 192.0.2.1:80 S")[0].Frame
	passed := 0
	for range 3000 {
		if action, _ := s.send(syn); action == xdpPass {
			passed++
		}
	}
	if passed != 2001 {
		t.Errorf("%d SYNs of a known connection pass beside forged ACKs, want 2001", passed)
	}
	s.must(xdpDrop, "limited 1", "tcp 198.51.100.7:1000 > 192.0.2.1:80 S")
	s.must(xdpPass, "", "tcp 198.51.100.7:1001 > 192.0.2.1:80 S") // one for the connection that was there, whatever else there is
	s.must(xdpPass, "proved 1", "%s", s.begin(routes[0], linux, 1001))
}

// TestFlowsEnd has connections end: they are forgotten when a packet of none looks into their bucket, those that were
// closed after two minutes, others after a day, and then no bucket counts as used.
func TestFlowsEnd(t *testing.T) {
	p := always()
	p.Flows = 1
	s := loadShield(t, protecting(p))
	used := func() (n int) {
		s.edit(image.FlowFilter, func(filter []byte) {
			n += ones(filter)
		})
		return n
	}
	strangers := func() {
		for port := range uint16(2000) {
			s.sendLine("tcp 203.0.113.5:%d > 192.0.2.1:80 .", port+1)
		}
		s.now += time.Second // in which the kernel may be asked again
	}
	established := func(port uint16) string {
		a := s.begin(routes[0], linux, port)
		s.must(xdpPass, "proved 1", "%s", a)
		s.establish()
		return fmt.Sprintf("tcp 198.51.100.7:%d > 192.0.2.1:80", port)
	}
	closed := established(1000)
	s.finish()
	open := established(1001)
	s.now += time.Minute
	strangers()
	s.must(xdpPass, "", "%s .", closed) // a last ACK, from which on two minutes count
	s.now += 3 * time.Minute
	strangers()
	s.must(xdpDrop, "invalid 1, asked 1", "%s .", closed)
	s.must(xdpDrop, "invalid 1, asked 1", "%s .", open) // the kernel, which is asked once a minute, does not have it
	established(1002)
	s.now += 23 * time.Hour
	strangers()
	if used() == 0 {
		t.Error("a connection that the kernel has is forgotten within a day")
	}
	s.now += 2 * time.Hour
	strangers()
	if n := used(); n != 0 {
		t.Errorf("%d buckets count as used when all connections have ended", n)
	}
}
