// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// foreignPrograms finds other tools' BPF programs at tc. They see each packet, cost time, may drop packets, and run after XDP.
func foreignPrograms(_ context.Context, h *host) []Finding {
	return eachDevice(h, "tc-programs", func(d *device) []Finding {
		linked, err := tcxPrograms(d)
		if err != nil {
			return []Finding{unseen("tc-programs", err)}
		}
		return []Finding{tcPrograms(append(tcFilters(d), linked...))}
	})
}

// tcxPrograms returns the names of other tools' programs that are attached to a device's ingress with links of TCX.
func tcxPrograms(d *device) (names []string, err error) {
	attached, err := link.QueryPrograms(link.QueryOptions{Target: d.index, Attach: ebpf.AttachTCXIngress})
	if errors.Is(err, unix.EPERM) {
		return nil, err
	}
	if err != nil { // before Linux 6.6 there is no TCX
		return nil, nil
	}
	for _, p := range attached.Programs {
		if name, err := datapath.ProgramName(p.ID); err == nil && !datapath.IsOurs(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// owners maps the start of a BPF program's name to the tool that owns the program.
var owners = map[string]string{
	"cil_": "Cilium", "cali_": "Calico", "xdp_dispatcher": "libxdp or bpfman", "tc_dispatcher": "bpfman", "xdpfilt": "xdp-filter",
}

// owner returns the tool that owns a program.
func owner(program string) string {
	for prefix, of := range owners {
		if strings.HasPrefix(program, prefix) {
			return of
		}
	}
	return "somebody else"
}

func tcPrograms(names []string) Finding {
	var others []string
	for _, n := range names {
		others = append(others, fmt.Sprintf("%q of %s", n, owner(n)))
	}
	f := Finding{ID: "tc-programs", Severity: Note, Evidence: "no BPF program of others is attached at tc"}
	if len(others) == 0 {
		return f.healthy()
	}
	f.Evidence = "BPF programs of others at tc: " + strings.Join(others, ", ") + " (from the kernel's tc filters and BPF links)"
	f.Cost = "they run for each packet that XDP lets through; what Floodwall drops they never see or count"
	return f.advice("`bpftool net show` tells whose they are; nothing needs to change when they belong here")
}

// tcFilters returns the names of the BPF programs in a device's ingress tc filters.
func tcFilters(d *device) (names []string) {
	l, err := netlink.LinkByIndex(d.index)
	if err != nil {
		return nil
	}
	filters, err := netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
	if err != nil { // the device has no clsact
		return nil
	}
	for _, f := range filters {
		if b, is := f.(*netlink.BpfFilter); is && !datapath.IsOurs(b.Name) {
			names = append(names, b.Name)
		}
	}
	return names
}
