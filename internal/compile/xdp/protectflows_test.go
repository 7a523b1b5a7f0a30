// SPDX-License-Identifier: Apache-2.0

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

// TestFlows opens more connections than the table has space for. The connections with the latest packets must stay, and so must active connections.
func TestFlows(t *testing.T) {
	p := always()
	p.Flows = 1 // the table then has the smallest possible size: 512 flows
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
		s.now += 20 * time.Millisecond // all within one minute, after which the program would ask the kernel
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

// establish marks all proved connections as accepted by the kernel. The program after XDP does this, too.
func (s *shield) establish() {
	s.t.Helper()
	s.restate(flowProved, flowEstablished)
}

// finish marks all open connections as closing. The program does this, too, for connections of the kernel.
func (s *shield) finish() {
	s.t.Helper()
	s.restate(flowEstablished, flowClosing)
}

// restate changes the state from to the state to, in all flows.
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

// TestFlowsUntaken opens connections that the kernel never accepts. They must be stored for two minutes only. However many there are, they must not
// displace a connection that the kernel has.
func TestFlowsUntaken(t *testing.T) {
	p := always()
	p.Flows = 1 // the table then has the smallest possible size: 512 flows
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

// TestFlowsDisplaced opens more connections from one network than the table has space for. The kernel accepts all of them. They must not displace
// more connections of other networks than the limit of the network allows. They must not displace a lasting connection while there are others.
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
	// With some hash keys, the connections of other networks alone overflow a bucket. One of them has then been displaced already.
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

// TestFlowsReset resets connections. A connection that was only proved must be removed at once. A closing connection must be removed after two
// minutes without packets, even if no other connection in its bucket is looked up.
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

// TestFlowsReopen sends SYNs of known connections during a flood of ACKs. It sends more SYNs than the kernel can process. Only SYNs of ended
// connections must then get a cookie, and the ACKs of these must count.
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
	s.must(xdpPass, "", "tcp 198.51.100.7:1001 > 192.0.2.1:80 S") // one SYN of the earlier connection always passes
	s.must(xdpPass, "proved 1", "%s", s.begin(routes[0], linux, 1001))
}

// TestFlowsEnd ends connections. When a packet without a connection reads their bucket, they must be removed: closed connections after two minutes,
// others after a day. After that, no bucket may count as used.
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
		s.now += time.Second // after a second, the program may ask the kernel again
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
	s.must(xdpPass, "", "%s .", closed) // the last ACK, from which the two minutes are counted
	s.now += 3 * time.Minute
	strangers()
	s.must(xdpDrop, "invalid 1, asked 1", "%s .", closed)
	s.must(xdpDrop, "invalid 1, asked 1", "%s .", open) // the program asks the kernel once a minute, and the kernel does not have the connection
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
