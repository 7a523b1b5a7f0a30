// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// While a device has a program at XDP and one at tc, a packet that XDP passes reaches tc, too. So for a change between both the device runs two other
// programs. That at XDP marks each packet in its metadata, and then runs the generation's program for XDP. That at tc passes packets with the mark, and
// runs the generation's program for tc for all others. So each packet is decided, charged and counted once.
//
// A driver without metadata cannot mark packets. Then XDP decides about them, and tc does so again about those that XDP passed, and the change is over
// sooner. If the process dies, the device goes on with these programs until the next change: they and their maps are pinned.
const (
	marking  Mode = "native_marking"
	unmarked Mode = "tc_unmarked"
)

// pinTail is the suffix of the array with the program that one of these programs runs. The kernel empties it when nothing refers to it from user space.
const pinTail = "_runs"

// inTransit is longer than a packet takes from XDP to tc: it may wait for others that the kernel joins to it, and in the backlog of a CPU. transitLook
// is the time between two questions whether the driver can mark packets.
const (
	inTransit   = 100 * time.Millisecond
	transitLook = 5 * time.Millisecond
	// inUse is longer than a CPU still runs a program that was replaced: a driver may read the program once for a batch of packets. A program whose
	// array is empty drops the packet.
	inUse = 20 * time.Millisecond
)

// handover has the programs for changes between tc and native mode.
type handover struct {
	programs map[Mode]*ebpf.Program // for the modes TC and Native
	cannot   *ebpf.Map              // its value is not 0 if the driver could not mark a packet
	close    func()
}

// newHandover loads and pins the programs for a generation.
func (s *State) newHandover(own *code) (h *handover, err error) {
	var opened []interface{ Close() error }
	closeAll := func() {
		for _, o := range opened {
			o.Close()
		}
	}
	h = &handover{programs: map[Mode]*ebpf.Program{}, close: closeAll}
	defer func() {
		if err != nil {
			closeAll()
			err = errors.Join(fmt.Errorf("programs for the change between tc and XDP: %w", err), s.dropHandover(own))
		}
	}()
	if h.cannot, err = ebpf.NewMap(&ebpf.MapSpec{Name: "cannot_mark", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
		return nil, err
	}
	opened = append(opened, h.cannot)
	mark := int64(rand.Uint64())
	for mode, place := range map[Mode]Mode{Native: marking, TC: unmarked} {
		prog, err := own.program(mode)
		if err != nil {
			return nil, err
		}
		array, err := ebpf.NewMap(&ebpf.MapSpec{Name: "runs", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
		if err != nil {
			return nil, err
		}
		opened = append(opened, array)
		if err := errors.Join(array.Put(uint32(0), prog), array.Pin(own.pin(place)+pinTail)); err != nil {
			return nil, err
		}
		spec := &ebpf.ProgramSpec{Name: image.Program + "_move", License: "Dual BSD/GPL"}
		if mode == Native {
			spec.Type, spec.AttachType, spec.Flags = ebpf.XDP, ebpf.AttachXDP, unix.BPF_F_XDP_HAS_FRAGS
			spec.Instructions = marks(mark, h.cannot, array)
		} else {
			spec.Type, spec.AttachType, spec.Instructions = ebpf.SchedCLS, ebpf.AttachTCXIngress, decidesUnmarked(mark, array)
		}
		if h.programs[mode], err = ebpf.NewProgram(spec); err != nil {
			return nil, err
		}
		opened = append(opened, h.programs[mode])
		if err := h.programs[mode].Pin(own.pin(place)); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// await waits until the packets that have passed XDP have passed tc. If packets cannot be marked, it returns at once.
func (h *handover) await() {
	for end := time.Now().Add(inTransit); time.Now().Before(end); periodic.SleepThread(transitLook) {
		var cannot uint64
		if err := h.cannot.Lookup(uint32(0), &cannot); err != nil || cannot != 0 {
			return
		}
	}
}

// handOver prepares devices for a change to a mode. The function change does it for one device. The function end completes it for all.
func (s *State) handOver(h *handover, devices []*Device, own *code, mode Mode) (change func(*Device, netlink.Link) error, end func() error) {
	from, refused := devices[0].Mode, map[*Device]error{}
	for _, d := range devices {
		if err := d.link.Update(h.programs[from]); err != nil {
			refused[d] = fmt.Errorf("updating device %s: %w", d.Name, err)
		}
	}
	if from == Native { // tc must see no packet that XDP passed without a mark
		h.await()
	}
	var before []pinnable
	done := false
	release := func() (err error) {
		for _, link := range before {
			err = errors.Join(err, link.Detach(), link.Close())
		}
		before = nil
		return err
	}
	change = func(d *Device, dev netlink.Link) error {
		if err := refused[d]; err != nil {
			return err
		}
		old := d.link
		if err := s.runIn(d, dev, mode, h.programs[mode]); err != nil {
			return err
		}
		before, done = append(before, old), true
		if from == Native {
			return release()
		}
		return nil
	}
	end = func() error {
		if done {
			h.await()
		}
		err := errors.Join(release(), s.endHandover(devices, own))
		h.close()
		return err
	}
	return change, end
}

// endHandover gives devices the programs of their generation again, and removes those of the handover. It skips devices that have gone. If a device
// keeps a program of the handover, all of these stay for the next change.
func (s *State) endHandover(devices []*Device, own *code) (err error) {
	for _, d := range devices {
		prog, one := own.program(d.place(d.Mode))
		if one == nil {
			one = d.link.Update(prog)
		}
		if one != nil && !errors.Is(one, unix.ENOLINK) && !errors.Is(one, unix.ENODEV) {
			err = errors.Join(err, fmt.Errorf("updating device %s: %w", d.Name, one))
		}
	}
	if err != nil {
		return err
	}
	if len(devices) > 0 {
		periodic.SleepThread(inUse)
	}
	return s.dropHandover(own)
}

// mendHandover ends a handover during which the process died.
func (s *State) mendHandover(devices []*Device, own *code) error {
	var run []*Device
	for _, place := range handing {
		id, err := pinnedID(own.pin(place))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, d := range devices {
			if err == nil && d.program == id {
				run = append(run, d)
			}
		}
	}
	return s.endHandover(run, own)
}

func (s *State) dropHandover(own *code) (err error) {
	for _, place := range handing {
		err = errors.Join(err, removeUnused(own.pin(place)), removeUnused(own.pin(place)+pinTail))
	}
	return err
}

// Offsets in struct xdp_md and struct __sk_buff of linux/bpf.h, and the size of the mark.
const (
	xdpData     = 0
	xdpDataMeta = 8
	xdpDevice   = 12
	skbDevice   = 40
	skbData     = 76
	skbDataMeta = 140
	markSize    = 8
)

// tailCall runs the program in an array with the context in R6. It returns only if there is none.
func tailCall(array *ebpf.Map) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("run"),
		asm.LoadMapPtr(asm.R2, array.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
	}
}

// marks returns the program at XDP: bpf_xdp_adjust_meta reserves space for the mark. The mark has the index of the device: a packet keeps it when the
// kernel passes it on, for example from the port of a bridge to the bridge, and the other device decides about it, too.
func marks(mark int64, cannot, array *ebpf.Map) asm.Instructions {
	const drop = 1 // XDP_DROP of linux/bpf.h
	code := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Imm(asm.R2, -markSize),
		asm.FnXdpAdjustMeta.Call(),
		asm.JNE.Imm(asm.R0, 0, "cannot"),
		asm.LoadMem(asm.R1, asm.R6, xdpDataMeta, asm.Word),
		asm.LoadMem(asm.R2, asm.R6, xdpData, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.Add.Imm(asm.R3, markSize),
		asm.JGT.Reg(asm.R3, asm.R2, "cannot"),
		asm.LoadImm(asm.R4, mark, asm.DWord),
		asm.LoadMem(asm.R5, asm.R6, xdpDevice, asm.Word),
		asm.Xor.Reg(asm.R4, asm.R5),
		asm.StoreMem(asm.R1, 0, asm.R4, asm.DWord),
		asm.Ja.Label("run"),
		asm.LoadMapValue(asm.R1, cannot.FD(), 0).WithSymbol("cannot"),
		asm.Mov.Imm(asm.R2, 1),
		asm.StoreMem(asm.R1, 0, asm.R2, asm.DWord),
	}
	return append(append(code, tailCall(array)...), asm.Mov.Imm(asm.R0, drop), asm.Return())
}

// decidesUnmarked returns the program at tc.
func decidesUnmarked(mark int64, array *ebpf.Map) asm.Instructions {
	const drop, next = 2, -1 // TC_ACT_SHOT of linux/pkt_cls.h, TCX_NEXT of linux/bpf.h
	code := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, skbDataMeta, asm.Word),
		asm.LoadMem(asm.R3, asm.R6, skbData, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, markSize),
		asm.JGT.Reg(asm.R4, asm.R3, "run"),
		asm.LoadMem(asm.R4, asm.R2, 0, asm.DWord),
		asm.LoadImm(asm.R5, mark, asm.DWord),
		asm.LoadMem(asm.R3, asm.R6, skbDevice, asm.Word),
		asm.Xor.Reg(asm.R5, asm.R3),
		asm.JEq.Reg(asm.R4, asm.R5, "next"),
	}
	code = append(append(code, tailCall(array)...), asm.Mov.Imm(asm.R0, drop), asm.Return())
	return append(code, asm.Mov.Imm(asm.R0, next).WithSymbol("next"), asm.Return())
}
