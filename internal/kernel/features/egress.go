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

// TCX returns an error when the kernel has no TCX: links at the tc hook, which go on without a process and change their program in one step.
func TCX() error { return tcxSupported(ebpf.AttachTCXEgress) }

// Egress returns an error when no program can see what leaves a device: neither by TCX nor by the qdisc clsact, which needs the modules
// sch_ingress and cls_bpf. A process that may make no namespace to try it in takes clsact for there.
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

// tryClsact adds the qdisc and a filter to a device of a namespace of its own.
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

// ReadsKernel reports whether programs at the tc hook may read the kernel's memory: not where it is locked down for confidentiality
// (kernel_lockdown(7)), nor without CAP_PERFMON.
func ReadsKernel() bool {
	return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnProbeReadKernel) == nil
}
