package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// foreignProgram is a program that another tool attached to a device, as far as the kernel tells.
type foreignProgram struct {
	program ebpf.ProgramID // 0: not known
	name    string
	link    link.ID // 0: it is attached without one, and `ip link` can remove it
}

func findForeign(dev netlink.Link) (p foreignProgram) {
	x := dev.Attrs().Xdp
	if x == nil || x.ProgId == 0 {
		return p
	}
	p.program = ebpf.ProgramID(x.ProgId)
	if prog, err := ebpf.NewProgramFromID(p.program); err == nil {
		defer prog.Close()
		if info, err := prog.Info(); err == nil {
			p.name = info.Name
		}
	}
	p.link = LinkOf(dev.Attrs().Index, p.program)
	return p
}

// LinkOf finds the link by which a program is attached to a device as XDP, 0 when there is none. Links are those of the
// whole machine, and devices of other network namespaces have the same numbers.
func LinkOf(ifindex int, program ebpf.ProgramID) link.ID {
	links := new(link.Iterator)
	defer links.Close()
	for links.Next() {
		info, err := links.Link.Info()
		if err != nil || info.Program != program {
			continue
		}
		if x := info.XDP(); x != nil && int(x.Ifindex) == ifindex {
			return info.ID
		}
	}
	return 0
}

func (p foreignProgram) cause() string {
	switch {
	case p.program == 0:
		return "another XDP program is attached"
	case p.name == "":
		return fmt.Sprintf("another XDP program is attached (program id %d)", p.program)
	}
	return fmt.Sprintf("another XDP program is attached (program id %d, %s)", p.program, p.name)
}

func (p foreignProgram) remedy(device string) string {
	switch {
	case p.link != 0 && (p.name == image.Program || p.name == trialProgram):
		return "it is another instance of Floodwall: `floodwall --bpffs DIR unload` with its directory ends it"
	case p.link != 0:
		return fmt.Sprintf("stop its owner or remove its pin (`bpftool link show id %d` tells whose it is): "+
			"`ip link` cannot remove what is attached by a link", p.link)
	}
	return fmt.Sprintf("find out whose it is (`bpftool net show dev %s`) and remove it (`ip link set dev %s xdp off`)",
		device, device)
}
