// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// plainPolicy has no checks. Checks do not depend on the device, and the verifier of an emulated machine takes long for them.
const plainPolicy = `default: drop
checks: off
services:
  - {name: open, port: udp/7000}
`

// changes tests a policy in three situations: many flows arrive, the link goes down and up, and frames are large.
func (s *scene) changes() {
	s.mustApply(plainPolicy)
	s.queues()
	s.flap()
	s.mtu()
}

// queues sends packets of many flows, which a card with several queues distributes to its queues. The counters must agree with the received packets.
func (s *scene) queues() {
	const flows = 300
	before := s.status()
	var texts []string
	for i := range flows {
		for _, port := range []int{drivertestOpenPort, drivertestClosedPort} {
			text := fmt.Sprintf("%s-flow-%d", s.name, i)
			s.wire.Send(s.frame(fmt.Sprintf("udp %s:%d > %s:%d payload=%q", s.peer(), 30000+i, s.host(), port, text)))
			texts = append(texts, text)
			time.Sleep(time.Millisecond) // a card loses frames that its ring cannot hold
		}
	}
	s.ready()
	received := s.machine.Received()
	n := 0
	for i, text := range texts {
		port := []int{drivertestOpenPort, drivertestClosedPort}[i%2]
		got := received[fmt.Sprintf("udp/%d %s", port, text)]
		if port == drivertestClosedPort && got > 0 {
			s.Errorf("%s was received at the closed port", text)
		}
		n += got
	}
	after := s.status()
	if passed := s.packets(after, "open") - s.packets(before, "open"); passed < uint64(n) || passed > uint64(flows)+20 {
		s.Errorf("%d packets of the open port were counted, %d of %d received", passed, n, flows)
	}
	if n < flows/2 {
		s.Errorf("%d of %d packets were received", n, flows)
	}
	queues := s.machine.Must("ethtool -S " + s.device() + " | grep -E 'rx_queue_[0-9]_packets|rx[0-9]_packets|ucast pkts rx' || true")
	s.Logf("%d of %d received; queues:\n%s", n, flows, queues)
	if s.name == "igb" && strings.Contains(queues, ": 0\n") {
		s.Errorf("not all queues were used: %s", queues)
	}
}

func (s *scene) packets(st drivertestStatus, rule string) uint64 {
	for _, r := range st.Rules {
		if r.Name == rule {
			return r.Packets
		}
	}
	s.Errorf("status has no rule %s", rule)
	return 0
}

// filtered checks that packets arrive, and that the machine receives no packet that the policy drops.
func (s *scene) filtered(when string) {
	s.Helper()
	const frames = 5
	s.ready()
	var closed []string
	for range frames {
		closed = append(closed, s.send(drivertestClosedPort))
	}
	s.ready()
	n := 0
	received := s.machine.Received()
	for _, text := range closed {
		n += received[fmt.Sprintf("udp/%d %s", drivertestClosedPort, text)]
	}
	if n > 0 {
		s.Errorf("%s: %d of %d packets that the policy drops were received: %s", when, n, frames,
			s.machine.Must("floodwall status; /bin/ip -d link show "+s.device()+"; dmesg | tail -5"))
	}
}

// flap takes the link down and up. After that, the driver vmxnet3 no longer runs native XDP, so Floodwall must not use it there.
func (s *scene) flap() {
	native := s.name != "vmxnet3"
	if st := s.status(); len(st.Devices) != 1 || (st.Devices[0].Mode == "native") != native {
		s.Errorf("the mode is %+v, want native mode: %v", st.Devices, native)
	}
	for i := range testutil.Scaled(1, 3) {
		s.machine.Must("ip link set " + s.device() + " down")
		s.machine.Must("ip link set " + s.device() + " up")
		s.filtered(fmt.Sprintf("after flap %d", i))
	}
}

// mtu sets an MTU of 9000 and sends frames that are larger than a page. If a policy can be applied at this MTU, it must filter these frames.
func (s *scene) mtu() {
	d := s.device()
	out, code := s.machine.Command("ip", "link", "set", d, "mtu", "9000")
	s.Logf("MTU 9000 with a policy: exit code %d: %s", code, out)
	s.filtered("with a policy, after the MTU was to be 9000")
	s.machine.Must("floodwall unload; ip link set " + d + " mtu 9000")
	large := s.large(drivertestOpenPort)
	out, code = s.apply(plainPolicy, "--mode", "native")
	s.Logf("apply --mode native at MTU 9000: exit code %d: %s", code, out)
	out, code = s.apply(plainPolicy)
	s.Logf("apply at MTU 9000: exit code %d: %s", code, out)
	if code == 0 {
		s.filtered("at MTU 9000")
		if large && !s.large(drivertestOpenPort) {
			s.Error("a frame of 8 kB to the open port was not received")
		}
		if s.large(drivertestClosedPort) {
			s.Error("a frame of 8 kB to the closed port was received")
		}
	}
	s.machine.Must("floodwall unload; ip link set " + d + " mtu 1500")
}

// large reports whether a frame of 8 kB reaches a port.
func (s *scene) large(port int) bool {
	s.Helper()
	s.sent++
	text := fmt.Sprintf("%s-large-%d-%s", s.name, s.sent, strings.Repeat("x", 8000))
	s.ready()
	s.wire.Send(s.frame(fmt.Sprintf("udp %s:999 > %s:%d payload=%q", s.peer(), s.host(), port, text)))
	s.ready()
	return s.arrived(port, text)
}
