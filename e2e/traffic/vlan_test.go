// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// tag puts all frames of a client into a VLAN. Frames from the other end may have the VLAN tag or not. BPF programs do the work of VLAN devices at
// both ends, because not every kernel supports these devices. An offload by which a veth carries the tag in the frame's metadata, where XDP does not
// see it, is turned off.
func (s *synScene) tag(i int) {
	s.Helper()
	testutil.RequireTool(s, "ethtool")
	const tpid, id = 0x0081, 100 // 802.1Q in network byte order
	s.run(s.clients[i], "ethtool -K protects txvlan off")
	s.run(s.protects, "ethtool -K "+s.devices[i]+" txvlan off")
	s.attach(s.clients[i], "protects", ebpf.AttachTCXEgress,
		asm.Mov.Imm(asm.R2, tpid), asm.Mov.Imm(asm.R3, id), asm.FnSkbVlanPush.Call())
	s.attach(s.clients[i], "protects", ebpf.AttachTCXIngress, asm.FnSkbVlanPop.Call())
	s.tagged = append(s.tagged, s.devices[i])
	s.untag()
}

// TestTwoTags connects a client whose frames have two VLAN tags. The kernel removes one of them before the program after XDP sees the frame. So this
// program cannot recognize the connection and give it to the kernel. The protection must continue for other connections, about which this says
// nothing.
func TestTwoTags(t *testing.T) {
	t.Parallel()
	synInScene(t, "host", 1, 1500, func(s *synScene) {
		testutil.RequireTool(s, "ethtool")
		const tpid = 0x0081 // 802.1Q in network byte order
		s.echo()
		s.run(s.clients[0], "ethtool -K protects txvlan off")
		s.run(s.protects, "ethtool -K client0 txvlan off")
		s.attach(s.clients[0], "protects", ebpf.AttachTCXEgress, asm.Mov.Reg(asm.R6, asm.R1),
			asm.Mov.Imm(asm.R2, tpid), asm.Mov.Imm(asm.R3, 100), asm.FnSkbVlanPush.Call(),
			asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, tpid), asm.Mov.Imm(asm.R3, 200), asm.FnSkbVlanPush.Call())
		s.attach(s.clients[0], "protects", ebpf.AttachTCXIngress, asm.Mov.Reg(asm.R6, asm.R1), asm.FnSkbVlanPop.Call(),
			asm.Mov.Reg(asm.R1, asm.R6), asm.FnSkbVlanPop.Call())
		s.protect(always, "")
		c, err := s.dial(s.clients[0], servers[0])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s.counts("invalid", 1)
		if p, counts := s.status(); p.Refused > 0 || counts["invalid"] == 0 {
			t.Errorf("the protection rests for %v s, counted %v", p.Refused, counts)
		}
	})
}

// untag makes the protecting host remove VLAN tags. The program for this runs after all other programs of the devices.
func (s *synScene) untag() {
	s.Helper()
	for _, l := range s.untags {
		l.Close()
	}
	s.untags = nil
	for _, device := range s.tagged {
		s.untags = append(s.untags, s.attach(s.protects, device, ebpf.AttachTCXIngress, asm.FnSkbVlanPop.Call()))
	}
}

// attach attaches a program to a device. The program runs the given instructions, and then continues with the next program.
func (s *synScene) attach(h *lab.Host, device string, at ebpf.AttachType, do ...asm.Instruction) (attached link.Link) {
	s.Helper()
	const next = -1 // TCX_NEXT of linux/bpf.h
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: append(do, asm.Mov.Imm(asm.R0, next), asm.Return()),
	})
	if err != nil {
		s.Fatal(err)
	}
	defer prog.Close()
	err = h.Do(func() error {
		dev, err := netlink.LinkByName(device)
		if err == nil {
			attached, err = link.AttachTCX(link.TCXOptions{Interface: dev.Attrs().Index, Program: prog, Attach: at})
		}
		return err
	})
	if err != nil {
		s.Fatalf("host %s, device %s: %v", h.Name, device, err)
	}
	s.Cleanup(func() { attached.Close() })
	return attached
}
