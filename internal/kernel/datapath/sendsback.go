// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/features"
)

// A veth passes the frames that its program sends with XDP_TX to its other end. The other end accepts them only while it polls, which needs GRO or a
// program of its own (veth_xdp_xmit in drivers/net/veth.c). With the kernel's defaults it has neither, and all answers are lost. Not all kernels
// report whether a device sends, because that depends on the configuration of the other end. So a test frame is sent to find out.
//
// With GRO alone the other end accepts frames. But XDP_TX does not wake it (veth_xdp_flush), while the test frame does. So the test frame would be
// sent although answers are lost. A program at the other end disables segmentation offload at this end (veth_fix_features). This distinguishes a
// program from GRO.

// NotSentError says that a device loses the answers of an XDP program in native mode.
type NotSentError struct {
	Device string
	Cause  error
}

func (e *NotSentError) Error() string {
	return fmt.Sprintf("device %s loses the packets that XDP in native mode sends as answers (%v)", e.Device, e.Cause)
}

// Unwrap returns the cause.
func (e *NotSentError) Unwrap() error { return e.Cause }

// SendsBack returns a *NotSentError when a device does not send the frames that an XDP program in native mode answers with XDP_TX. It returns another
// error when it cannot find that out. It sends one frame, of an EtherType for local experiments (IEEE 802, 0x88b5), to the group address of the
// nearest bridge, which no bridge forwards. It requires the rights to load programs.
//
// SendsBack does not test a device on a bus, such as PCI or virtio. XDP_TX has its own queue there, and the driver refuses a program without such a
// queue. The test would use ndo_xdp_xmit, which several of these drivers lack. For a purely virtual device both are the same function. For a bond,
// SendsBack tests the ports, through which the bond sends.
func SendsBack(dev netlink.Link) error {
	ports, err := sendersOf(dev)
	if err != nil {
		return err
	}
	for _, port := range ports {
		if port.Attrs().ParentDev != "" {
			continue
		}
		err := askToSend(port)
		if err == nil && port.Type() == "veth" && !facesProgram(port.Attrs().Name) {
			err = &NotSentError{port.Attrs().Name, errNoReader}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var errNoReader = errors.New("the other end of the veth has no XDP program")

// facesProgram reports whether the other end of a veth has a program.
func facesProgram(device string) bool {
	c, err := features.Open()
	if err != nil {
		return false
	}
	defer c.Close()
	all, err := c.Features(device)
	segments, known := all["tx-tcp-segmentation"]
	return err == nil && known && !segments.On && segments.Fixed
}

// sendersOf returns the devices that send the packets of a device: the ports of a bond, else the device itself.
func sendersOf(dev netlink.Link) ([]netlink.Link, error) {
	if dev.Type() != "bond" {
		return []netlink.Link{dev}, nil
	}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("ports of device %s: %w", dev.Attrs().Name, err)
	}
	return slices.DeleteFunc(links, func(l netlink.Link) bool { return l.Attrs().MasterIndex != dev.Attrs().Index }), nil
}

// askToSend sends a frame on a device through the driver's function ndo_xdp_xmit. It reads the result from the kernel's tracepoints.
func askToSend(dev netlink.Link) error {
	result, err := ebpf.NewMap(&ebpf.MapSpec{Name: "sends_back", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return err
	}
	defer result.Close()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "sends_back", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R1, int32(dev.Attrs().Index)),
			asm.Mov.Imm(asm.R2, 0),
			asm.FnRedirect.Call(),
			asm.Return(),
		},
	})
	if err != nil {
		return err
	}
	defer prog.Close()
	runtime.LockOSThread() // the tracepoints record only this thread
	defer runtime.UnlockOSThread()
	explain := func(err error) error {
		return fmt.Errorf("asking device %s whether it sends: %w", dev.Attrs().Name, err)
	}
	for name, told := range map[string]asm.Instructions{"xdp_devmap_xmit": toldOfSending(), "xdp_redirect_err": toldOfRefusal()} {
		end, err := listen(name, told, result)
		if err != nil {
			return explain(fmt.Errorf("tracepoint %s: %w", name, err))
		}
		defer end.Close()
	}
	frame := slices.Concat([]byte{0x01, 0x80, 0xc2, 0, 0, 0x0e}, dev.Attrs().HardwareAddr, []byte{0x88, 0xb5}, make([]byte, 46))
	if _, err := prog.Run(&ebpf.RunOptions{Data: frame, Repeat: 1, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES}); err != nil {
		return explain(err)
	}
	var got int32 // number of sent frames, or a negative error number
	if err := result.Lookup(uint32(0), &got); err != nil {
		return err
	}
	switch {
	case got > 0:
		return nil
	case got == 0:
		return &NotSentError{dev.Attrs().Name, errors.New("the kernel dropped it")}
	}
	return &NotSentError{dev.Attrs().Name, whyNotSent(dev, unix.Errno(-got))}
}

// whyNotSent replaces a known error number by an explanation. For a missing reader a veth returns EOPNOTSUPP since Linux 6.3, and ENXIO before.
func whyNotSent(dev netlink.Link, err unix.Errno) error {
	up := dev.Attrs().OperState == netlink.OperUp
	if dev.Type() == "veth" && up && (err == unix.EOPNOTSUPP || err == unix.ENXIO) {
		return errNoReader
	}
	return err
}

// listen runs instructions at a tracepoint until the returned link is closed. It runs them only for this thread. R6 has the tracepoint's arguments.
// The instructions must leave the value to record in R7.
func listen(name string, told asm.Instructions, result *ebpf.Map) (link.Link, error) {
	code := slices.Concat(asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.FnGetCurrentPidTgid.Call(),
		asm.JNE.Imm32(asm.R0, int32(unix.Gettid()), "end"),
	}, told, asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word).WithSymbol("note"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, result.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.StoreMem(asm.R0, 0, asm.R7, asm.Word),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	})
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sends_back", Type: ebpf.RawTracepoint, License: "Dual BSD/GPL", Instructions: code})
	if err != nil {
		return nil, err
	}
	defer prog.Close()
	return link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: prog})
}

// toldOfSending decodes xdp_devmap_xmit(from, to, sent, drops, err) of include/trace/events/xdp.h.
func toldOfSending() asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R7, asm.R6, 2*8, asm.DWord),
		asm.JNE.Imm(asm.R7, 0, "note"),
		asm.LoadMem(asm.R7, asm.R6, 4*8, asm.DWord),
	}
}

// toldOfRefusal decodes xdp_redirect_err(device, program, target, err, …).
func toldOfRefusal() asm.Instructions {
	return asm.Instructions{asm.LoadMem(asm.R7, asm.R6, 3*8, asm.DWord)}
}
