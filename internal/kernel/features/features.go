// SPDX-License-Identifier: Apache-2.0

package features

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
)

// probe loads an empty program for the tc hook.
func probe() (*ebpf.Program, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "probe", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("program for the tc hook: %w", err)
	}
	return prog, nil
}

func tcxSupported(at ebpf.AttachType) error {
	prog, err := probe()
	if err != nil {
		return err
	}
	defer prog.Close()
	const nowhere = 0 // no device has this index; a kernel with TCX returns another error
	_, err = link.AttachTCX(link.TCXOptions{Interface: nowhere, Program: prog, Attach: at})
	if errors.Is(err, link.ErrNotSupported) {
		return errors.New("the kernel has no TCX, which Linux has since 6.6")
	}
	return nil
}

// Reqsk returns an error when a program cannot pass a connection to the kernel after it has checked the connection's cookie.
func Reqsk() error {
	if err := tcxSupported(ebpf.AttachTCXIngress); err != nil {
		return err
	}
	return kfuncSupported("bpf_sk_assign_tcp_reqsk", "6.9, when it is built with SYN cookies")
}

// kfuncSupported looks for a kernel function in the type information (BTF) of the kernel and its modules.
func kfuncSupported(name, since string) error {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("the kernel has no type information (CONFIG_DEBUG_INFO_BTF) that %s is found by: %w", name, err)
	}
	if hasFunction(kernel, name) {
		return nil
	}
	modules := new(btf.HandleIterator)
	defer modules.Handle.Close()
	for modules.Next() {
		info, err := modules.Handle.Info()
		if err != nil || !info.IsModule() {
			continue
		}
		if spec, err := modules.Handle.Spec(kernel); err == nil && hasFunction(spec, name) {
			return nil
		}
	}
	if err := modules.Err(); err != nil {
		return fmt.Errorf("type information of the kernel's modules: %w", err)
	}
	return fmt.Errorf("the kernel has no %s, which Linux has since %s", name, since)
}

func hasFunction(spec *btf.Spec, name string) bool {
	var f *btf.Func
	return spec.TypeByName(name, &f) == nil
}

// RawCookies returns an error when XDP programs can neither make nor check the kernel's SYN cookies without a
// socket.
func RawCookies() error {
	for _, helper := range []asm.BuiltinFunc{
		asm.FnTcpRawGenSyncookieIpv4, asm.FnTcpRawGenSyncookieIpv6, asm.FnTcpRawCheckSyncookieIpv4, asm.FnTcpRawCheckSyncookieIpv6,
	} {
		err := features.HaveProgramHelper(ebpf.XDP, helper)
		if errors.Is(err, ebpf.ErrNotSupported) {
			return fmt.Errorf("the kernel has no %v for XDP, which Linux has since 6.0", helper)
		}
		if err != nil {
			return fmt.Errorf("asking the kernel for %v: %w", helper, err)
		}
	}
	return nil
}
