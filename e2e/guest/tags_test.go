// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"strings"
)

// tagPolicy drops packets in VLAN 5, and packets to all ports except one.
const tagPolicy = `default: drop
checks: standard
rules:
  - {name: forbidden, vlan: 5, then: drop}
services:
  - {name: open, port: udp/7000}
`

// stacks are the stacks of VLAN tags to test. The kernel removes every tag with the identifier 0. It gives a packet with another identifier to the
// device of that VLAN. The machine has devices for the VLANs 5 and 6.
var stacks = func() (stacks [][]tag) {
	kinds := []tag{{0x8100, 0}, {0x8100, 5}, {0x8100, 6}, {0x88a8, 0}, {0x88a8, 5}}
	var add func(stack []tag)
	add = func(stack []tag) {
		stacks = append(stacks, stack)
		if len(stack) == 4 {
			return
		}
		for _, k := range kinds {
			if len(stack) >= 2 && k != stack[len(stack)-1] && k.id != 5 {
				continue // only some of the deep stacks
			}
			add(append(stack[:len(stack):len(stack)], k))
		}
	}
	add(nil)
	return stacks
}()

// tags sends frames with all stacks of VLAN tags to the open port and to a closed port. No frame that the policy drops may reach an application. A
// driver with VLAN offload removes the outermost tag before XDP runs. In this case Floodwall must refuse native mode, and filter at tc.
func (s *scene) tags() {
	for _, offload := range s.offloads() {
		s.machine.Command("ethtool", "-K", s.device(), "rxvlan", offload)
		if s.strips() {
			s.refused(tagPolicy)
		}
		s.mustApply(tagPolicy)
		if st := s.status(); st.Target != "xdp" || (st.Devices[0].Mode == "tc") != s.strips() {
			s.Errorf("rxvlan %s: %+v", offload, st)
		}
		s.stacks("rxvlan " + offload)
	}
	if s.name == "virtio_net" {
		return
	}
	s.machine.Must("ethtool -K " + s.device() + " rxvlan off")
	s.mustApply(tagPolicy, "--mode", "native")
	s.machine.Must("ethtool -K " + s.device() + " rxvlan on")
	if out, _ := s.machine.Command("floodwall", "status"); !strings.Contains(out, "rxvlan off") {
		s.Errorf("status does not say that the device takes tags off: %s", out)
	}
	s.machine.Must("ethtool -K " + s.device() + " rxvlan off")
}

// offloads returns the settings of rxvlan (VLAN offload on receive) that the driver has. virtio_net has no such offload.
func (s *scene) offloads() []string {
	if s.name == "virtio_net" {
		return []string{"off"}
	}
	return []string{"off", "on"}
}

// strips reports whether the driver removes VLAN tags.
func (s *scene) strips() bool {
	s.Helper()
	return strings.Contains(s.machine.Must("ethtool -k "+s.device()), "rx-vlan-offload: on")
}

// refused checks that apply refuses native mode for a policy that depends on VLAN tags.
func (s *scene) refused(policy string) {
	s.Helper()
	out, code := s.apply(policy, "--mode", "native")
	if code != 1 || !strings.Contains(out, "ethtool -K "+s.device()+" rxvlan off") {
		s.Errorf("apply --mode native to a device that takes tags off: exit code %d: %s", code, out)
	}
}

// stacks sends a frame for each stack and port. It checks that no frame was received that the policy drops.
func (s *scene) stacks(when string) {
	s.Helper()
	s.ready()
	type sent struct {
		port  int
		stack []tag
		text  string
	}
	var all []sent
	for _, stack := range stacks {
		for _, port := range []int{drivertestOpenPort, drivertestClosedPort} {
			all = append(all, sent{port, stack, s.send(port, stack...)})
		}
	}
	s.ready() // now all frames sent before have been received
	received := s.machine.Received()
	n, wrong := 0, 0
	for _, f := range all {
		arrived := received[fmt.Sprintf("udp/%d %s", f.port, f.text)]
		n += arrived
		if forbidden := f.port == drivertestClosedPort || len(f.stack) > 0 && f.stack[0].id == 5; arrived > 0 && forbidden {
			if wrong++; wrong < 10 {
				s.Errorf("%s: received at port %d behind %x, against the policy", when, f.port, f.stack)
			}
		}
		if arrived == 0 && f.port == drivertestOpenPort && len(f.stack) == 0 {
			s.Errorf("%s: not received at port %d without tags", when, f.port)
		}
	}
	s.Logf("%s: of %d frames %d were received, %d against the policy", when, len(all), n, wrong)
}
