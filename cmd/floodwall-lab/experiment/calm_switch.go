// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
)

// pastXDP is a packet socket, whose filter notes when it saw the first and the last packet that is for the host. A packet gets there after XDP and before
// tc. XDP passes no packet of the flood, so the last one is the last that tc decided about. The kernel's list of programs shows the change later: it
// needs the lock of the network configuration. The kernel holds that lock until a grace period of RCU after XDP has taken over.
type pastXDP struct {
	device *lab.Device
	times  *ebpf.Map
	socket int
}

// pastTimes are the times of the first and the last packet, in nanoseconds of the monotonic clock; 0: none.
type pastTimes struct{ First, Last uint64 }

// watchPastXDP opens the socket for a device.
func watchPastXDP(d *lab.Device) (w *pastXDP, err error) {
	const packetType, protocol = 4, 16 // offsets in struct __sk_buff of linux/bpf.h
	w = &pastXDP{device: d, socket: -1}
	if w.times, err = ebpf.NewMap(&ebpf.MapSpec{Name: "times", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(binary.Size(pastTimes{})), MaxEntries: 1}); err != nil {
		return nil, err
	}
	filter, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "past_xdp", Type: ebpf.SocketFilter, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, packetType, asm.Word),
		asm.JNE.Imm(asm.R2, unix.PACKET_HOST, "ignore"),
		asm.LoadMem(asm.R2, asm.R1, protocol, asm.Word),
		asm.JNE.Imm(asm.R2, int32(bits.ReverseBytes16(unix.ETH_P_IP)), "ignore"),
		asm.FnKtimeGetNs.Call(),
		asm.LoadMapValue(asm.R1, w.times.FD(), 0),
		asm.StoreMem(asm.R1, int16(unsafe.Offsetof(pastTimes{}.Last)), asm.R0, asm.DWord),
		asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord),
		asm.JNE.Imm(asm.R2, 0, "ignore"),
		asm.StoreMem(asm.R1, 0, asm.R0, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("ignore"),
		asm.Return(),
	}})
	if err == nil {
		defer filter.Close()
		err = d.Host.Do(func() (err error) {
			if w.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
				return err
			}
			if err := unix.SetsockoptInt(w.socket, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, filter.FD()); err != nil {
				return err
			}
			return unix.Bind(w.socket, &unix.SockaddrLinklayer{Protocol: bits.ReverseBytes16(unix.ETH_P_ALL), Ifindex: d.Index})
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("packet socket for device %s: %w", d.Name, err), w.close())
	}
	return w, nil
}

// close closes the socket.
func (w *pastXDP) close() error {
	if w.socket >= 0 {
		unix.Close(w.socket)
	}
	return w.times.Close()
}

// switching waits until XDP decides about a flood, and is in the list of programs. It returns the time from the first packet to the last one, and the
// share of the whole wait in which the receive thread ran.
func (w *pastXDP) switching(ctx context.Context) (took time.Duration, busy float64, err error) {
	var seen pastTimes
	var began time.Time
	var ran time.Duration
	for late := time.Now().Add(calmWait); err == nil && time.Now().Before(late) && ctx.Err() == nil; {
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil) // a timer of Go would need another thread
		last := seen.Last
		switch err = w.times.Lookup(uint32(0), &seen); {
		case err != nil || seen.First == 0:
		case began.IsZero():
			began = time.Now()
			ran, err = w.device.Ran()
		case seen.Last == last: // XDP decides, or the flood pauses
			after, ranErr := w.device.Ran()
			busy = float64(after-ran) / float64(time.Since(began))
			there, thereErr := atXDP(w.device)
			err = errors.Join(ranErr, thereErr, w.times.Lookup(uint32(0), &seen))
			if there && err == nil {
				return time.Duration(seen.Last - seen.First), busy, nil
			}
		}
	}
	return 0, 0, errors.Join(err, ctx.Err(), fmt.Errorf("after %v XDP does not decide about the flood", calmWait))
}

// atXDP reports whether a device has a program at XDP.
func atXDP(d *lab.Device) (is bool, err error) {
	err = d.Host.Do(func() error {
		dev, err := netlink.LinkByName(d.Name)
		is = err == nil && dev.Attrs().Xdp != nil && dev.Attrs().Xdp.Attached
		return err
	})
	return is, err
}
