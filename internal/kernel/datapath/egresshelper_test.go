// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// guarding returns an image that drops all packets in both directions. Its rules drop packets that enter. A guard's limit, which allows nothing,
// drops packets that leave from UDP port 53. Both count in the given slot. The image also has a program for packets that XDP has passed, although XDP
// passes none.
func guarding(slot uint32) *image.Image {
	const anyCost = 1 << 16 // struct limit_info of bpf/limit.h: above a debt of at most 0
	im := always(slot, 1)
	im.Egress, im.Ingress, im.Slots = true, true, slot+1
	im.Constants["guarded"] = true
	im.Shapes = map[string]image.Shape{
		image.Guards:     {ValueSize: uint32(image.GuardSize), Entries: 1},
		image.GuardPorts: {ValueSize: packet.PortNone, Entries: 1},
		image.LimitInfos: {ValueSize: image.LimitInfoSize, Entries: 1},
		image.HostPorts:  {ValueSize: packet.PortUDP, Entries: 1},
	}
	im.Fill = func(memory map[string][]byte) error {
		image.Put(memory[image.Guards], image.GuardRecord{Slot: slot, Flags: 1}) // it limits
		memory[image.GuardPorts][packet.PortUDP+53] = 1
		binary.NativeEndian.PutUint64(memory[image.LimitInfos], anyCost)
		return nil
	}
	return im
}

// atHook returns the program that is attached to a hook of a device, or nil. The caller must close it.
func atHook(t *testing.T, dev netlink.Link, hook ebpf.AttachType) *ebpf.Program {
	t.Helper()
	if hook == ebpf.AttachTCXEgress && !datapath.HasTCX() {
		return classifierOf(t, dev)
	}
	there, err := link.QueryPrograms(link.QueryOptions{Target: dev.Attrs().Index, Attach: hook})
	if err != nil {
		t.Fatal(err)
	}
	if len(there.Programs) == 0 {
		return nil
	}
	if n := len(there.Programs); n > 1 {
		t.Errorf("device %s has %d programs for %v", dev.Attrs().Name, n, hook)
	}
	prog, err := ebpf.NewProgramFromID(there.Programs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return prog
}

// classifierOf returns the program of the egress filter of a device, or nil.
func classifierOf(t *testing.T, dev netlink.Link) *ebpf.Program {
	t.Helper()
	list, err := netlink.FilterList(dev, netlink.HANDLE_MIN_EGRESS)
	if err != nil || len(list) == 0 {
		return nil
	}
	prog, err := ebpf.NewProgramFromID(ebpf.ProgramID(list[0].(*netlink.BpfFilter).Id))
	if err != nil || len(list) > 1 {
		t.Fatalf("%d filters, %v", len(list), err)
	}
	return prog
}

// hasEntering reports whether a device has a program for packets that XDP has passed.
func hasEntering(t *testing.T, dev netlink.Link) bool {
	t.Helper()
	prog := atHook(t, dev, ebpf.AttachTCXIngress)
	return prog != nil && prog.Close() == nil
}

const response = "udp 192.0.2.1:53 > 198.51.100.7:1234"

// decidesLeaving runs a device's egress program on a response, and returns the name of the policy that counts the response. It returns "pass" if no
// policy counts it, and "" if no program is attached.
func decidesLeaving(t *testing.T, dev netlink.Link) string {
	t.Helper()
	prog := atHook(t, dev, ebpf.AttachTCXEgress)
	if prog == nil {
		return ""
	}
	defer prog.Close()
	return counts(t, func() {
		const next, drop = 0xffffffff, 2 // TCX_NEXT and TCX_DROP of linux/bpf.h
		if got, _, err := prog.Test(frame(t, response)); err != nil || got != next && got != drop {
			t.Errorf("device %s: what leaves gets %d, %v", dev.Attrs().Name, got, err)
		}
	})
}
