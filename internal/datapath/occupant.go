package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/xdp"
)

// occupant is a program of somebody else on a device, as far as it can be found out.
type occupant struct {
	program ebpf.ProgramID // 0: not known
	name    string
	link    link.ID // 0: it is attached without one, and `ip link` can remove it
}

func findOccupant(dev netlink.Link) (o occupant) {
	x := dev.Attrs().Xdp
	if x == nil || x.ProgId == 0 {
		return o
	}
	o.program = ebpf.ProgramID(x.ProgId)
	if prog, err := ebpf.NewProgramFromID(o.program); err == nil {
		defer prog.Close()
		if info, err := prog.Info(); err == nil {
			o.name = info.Name
		}
	}
	o.link = LinkOf(dev.Attrs().Index, o.program)
	return o
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

func (o occupant) cause() string {
	switch {
	case o.program == 0:
		return "another XDP program is attached"
	case o.name == "":
		return fmt.Sprintf("another XDP program is attached (program id %d)", o.program)
	}
	return fmt.Sprintf("another XDP program is attached (program id %d, %s)", o.program, o.name)
}

func (o occupant) remedy(device string) string {
	switch {
	case o.link != 0 && (o.name == xdp.Program || o.name == trialProgram):
		return "it is another instance of Floodwall: `floodwall --bpffs DIR unload` with its directory ends it"
	case o.link != 0:
		return fmt.Sprintf("stop its owner or remove its pin (`bpftool link show id %d` tells whose it is): "+
			"`ip link` cannot remove what is attached by a link", o.link)
	}
	return fmt.Sprintf("find out whose it is (`bpftool net show dev %s`) and remove it (`ip link set dev %s xdp off`)",
		device, device)
}
