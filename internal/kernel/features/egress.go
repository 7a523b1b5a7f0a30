// SPDX-License-Identifier: Apache-2.0

package features

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TCX returns an error when the kernel has no TCX. Links of TCX at the tc hook stay without a process, and their program can be replaced atomically.
func TCX() error { return tcxSupported(ebpf.AttachTCXEgress) }

// Egress returns an error when no program can see the packets that leave a device. A program can see them with TCX or with the qdisc clsact, which
// needs the modules sch_ingress and cls_bpf. To test clsact, Egress creates a namespace. If this process may not create one, Egress assumes that
// clsact works.
func Egress() error {
	tcx := TCX()
	if tcx == nil {
		return nil
	}
	if err := tryClsact(); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w, and no qdisc clsact: %w", tcx, err)
	}
	return nil
}

// tryClsact adds the qdisc clsact and a filter to a device in a separate namespace.
func tryClsact() error {
	tried := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with the thread
		tried <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			const loopback = 1
			parent := netlink.HANDLE_MIN_EGRESS
			err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
				LinkIndex: loopback, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
			}})
			if err != nil {
				return err
			}
			prog, err := probe()
			if err != nil {
				return err
			}
			defer prog.Close()
			return netlink.FilterAdd(&netlink.BpfFilter{
				FilterAttrs: netlink.FilterAttrs{LinkIndex: loopback, Parent: uint32(parent), Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1},
				Fd:          prog.FD(), Name: "probe", DirectAction: true,
			})
		}()
	}()
	return <-tried
}

// ReadsKernel reports whether programs at the tc hook may read the kernel's memory. It returns false when the kernel is locked down for
// confidentiality (kernel_lockdown(7)), or without CAP_PERFMON.
func ReadsKernel() bool {
	return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnProbeReadKernel) == nil
}
