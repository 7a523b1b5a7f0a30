// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// foreignProgram is a program that another tool attached to a device, as far as the kernel reports it.
type foreignProgram struct {
	program ebpf.ProgramID // 0: not known
	name    string
	link    link.ID // 0: attached without a link, so `ip link` can remove the program
	mode    uint32  // XDP_ATTACHED_... of include/uapi/linux/if_link.h
}

// IsOurs reports whether a program has the name of ours, of any instance.
func IsOurs(name string) bool { return strings.HasPrefix(name, image.Program) }

// ProgramName returns the name of a program. Only root can read it.
func ProgramName(id ebpf.ProgramID) (string, error) {
	prog, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return "", err
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		return "", err
	}
	return info.Name, nil
}

func findForeign(dev netlink.Link) (p foreignProgram) {
	x := dev.Attrs().Xdp
	if x == nil || x.ProgId == 0 {
		return p
	}
	p.program, p.mode = ebpf.ProgramID(x.ProgId), x.AttachMode
	p.name, _ = ProgramName(p.program) // "" is described as well
	p.link = LinkOf(dev.Attrs().Index, p.program)
	return p
}

// Refused returns the reason why a device cannot have the program, as far as that is known without attaching one. It returns nil if no reason is
// known.
func Refused(name string) *AttachError {
	dev, err := findDevice(name)
	if refused := (*AttachError)(nil); errors.As(err, &refused) {
		return refused
	}
	if err != nil {
		return nil
	}
	o := findForeign(dev)
	if hasTC() || o.program == 0 || IsOurs(o.name) {
		return nil
	}
	return &AttachError{Device: name, Cause: o.cause(), Remedy: o.remedy(name)}
}

// LinkOf returns the ID of the link by which a program is attached to a device as XDP. It returns 0 when there is no such link. The kernel lists the
// links of the whole machine, and devices of other network namespaces can have the same index, so LinkOf also compares the program.
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

// ModeWord returns the keyword of `ip link` that removes a program attached in the given mode. mode is XDP_ATTACHED_... of
// include/uapi/linux/if_link.h. With the keyword `xdp`, `ip link` looks only in the driver and reports no error.
func ModeWord(mode uint32) string {
	const hardware = 3 // XDP_ATTACHED_HW
	switch mode {
	case attachedSKB:
		return "xdpgeneric"
	case hardware:
		return "xdpoffload"
	}
	return "xdpdrv"
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
	case p.link != 0 && IsOurs(p.name):
		return "it is another instance of Floodwall: `floodwall --bpffs DIR unload` with its directory ends it"
	case p.link != 0:
		return fmt.Sprintf("stop its owner or remove its pin (`bpftool link show id %d` tells whose it is): "+
			"`ip link` cannot remove what is attached by a link", p.link)
	}
	return fmt.Sprintf("find out whose it is (`bpftool net show dev %s`) and remove it (`ip link set dev %s %s off`)",
		device, device, ModeWord(p.mode))
}
