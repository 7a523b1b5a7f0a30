// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Mode is the place where the kernel runs a device's program.
type Mode string

// The modes.
const (
	Keep    Mode = ""        // that of the program on the device; Auto for a device without one
	Auto    Mode = "auto"    // native; Instead if the device refuses that, or if the driver may stop running XDP
	Native  Mode = "native"  // at XDP, in the driver, before the kernel processes the frame
	Generic Mode = "generic" // at XDP, in the kernel's receive path: at several times the cost
	TC      Mode = "tc"      // at the ingress of tc: any device, beside any other program
)

// Instead returns the mode for a device that cannot run the program in native mode: TC, or Generic on a kernel that lacks the former.
func Instead() Mode {
	if hasTC() {
		return TC
	}
	return Generic
}

// attach attaches the new program to a device that has none of our programs, and pins the link under a temporary name. A link under the device's own
// name may still exist, from before the device went away. This old link must stay if the swap is undone.
func (s *swap) attach(dev netlink.Link, mode Mode) (*Device, error) {
	index := dev.Attrs().Index
	d := &Device{Name: dev.Attrs().Name, ifindex: index, pin: passingName(index), bare: isBare(dev)}
	if err := s.state.openSides(d); err != nil { // a command that died may have left links
		return nil, err
	}
	err := s.updateSides(d, true, false)
	if err == nil {
		err = d.measured(dev, func() error { return s.attachAs(d, dev, mode) })
	}
	if err != nil {
		return nil, errors.Join(err, s.state.releaseSides(d))
	}
	if err := d.link.Pin(s.state.path(dirLinks, d.pin)); err != nil {
		err = fmt.Errorf("pinning the link of device %s: %w", d.Name, err)
		return nil, errors.Join(err, d.link.Detach(), d.link.Close(), s.state.releaseSides(d))
	}
	return d, nil
}

// attachAs attaches the new program in a mode. With Auto, a driver that refuses XDP, and another program at XDP, lead to the mode Instead.
func (s *swap) attachAs(d *Device, dev netlink.Link, mode Mode) error {
	if d.bare && mode == Auto {
		mode = TC
	}
	if err := readsIn(dev, mode); err != nil {
		return err
	}
	if mode != Auto {
		err := s.attachIn(d, mode)
		if mode == TC && !d.bare && errors.Is(err, os.ErrNotExist) { // see Attachment.Chosen
			err = s.attachIn(d, Generic)
		}
		return explainAttach(dev, err)
	}
	if !d.bare && !Forgetful(d.Name) {
		err := s.attachIn(d, Native)
		if err == nil || errors.Is(err, unix.EPERM) || !hasTC() && !errors.Is(err, unix.EOPNOTSUPP) {
			return explainAttach(dev, err)
		}
		errors.As(explainAttach(dev, err), &d.NotNative)
	}
	err := s.attachIn(d, Instead())
	// The generation has no program for tc, because no device needed it when it was applied, or an old verifier refuses the program.
	if errors.Is(err, os.ErrNotExist) || err != nil && !hasTCX() && !d.bare {
		err = s.attachIn(d, Generic)
	}
	if err != nil && d.NotNative != nil {
		return &AttachError{Device: d.Name, Cause: fmt.Sprintf("%s; mode %s: %v", d.NotNative.Cause, Instead(), err), Remedy: d.NotNative.Remedy}
	}
	return explainAttach(dev, err)
}

func (s *swap) attachIn(d *Device, mode Mode) error {
	prog, err := s.programFor(d.place(mode), true, false)
	if err != nil {
		return err
	}
	d.Mode = mode
	d.link, err = attachProgram(d.ifindex, mode, prog)
	return err
}

// attachProgram attaches a program to a device. At tc it is the first program.
func attachProgram(ifindex int, mode Mode, prog *ebpf.Program) (pinnable, error) {
	if mode == TC && !hasTCX() {
		c := ingressOf(ifindex)
		return c, c.Update(prog)
	}
	if mode == TC {
		return link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	}
	flags := link.XDPDriverMode
	if mode == Generic {
		flags = link.XDPGenericMode
	}
	return link.AttachXDP(link.XDPOptions{Program: prog, Interface: ifindex, Flags: flags})
}

// bareTypes are the link types of devices whose packets begin with the IP header: tun, WireGuard; PPP; GRE over IPv4 and IPv6; IPIP; the tunnels over
// IPv6; SIT; modems. The last two numbers are ARPHRD_IP6GRE and ARPHRD_RAWIP of include/uapi/linux/if_arp.h.
var bareTypes = []string{"none", "ppp", "gre", "ipip", "tunnel6", "sit", "unknown823", "unknown519"}

// ipsecKinds are the kinds of devices whose packets keep the link header of the device by which they came encrypted (net/xfrm/xfrm_input.c:
// xfrm4_remove_tunnel_encap and xfrm6_remove_tunnel_encap call skb_mac_header_rebuild). At tc they begin with an Ethernet header or with the IP header,
// and the program cannot tell which.
var ipsecKinds = []string{"xfrm", "vti", "vti6"}

// isBare reports whether the packets of a device begin with the IP header.
func isBare(dev netlink.Link) bool {
	return slices.Contains(bareTypes, dev.Attrs().EncapType) && !slices.Contains(ipsecKinds, dev.Type())
}

// readsIn returns an error if the program cannot read the packets of a device in a mode, or if the kernel lacks the mode.
func readsIn(dev netlink.Link, mode Mode) error {
	name, kind := dev.Attrs().Name, dev.Attrs().EncapType
	switch {
	case mode == TC && !hasTC():
		return &AttachError{Device: name, Cause: "mode tc needs Linux 6.6, or the modules sch_ingress and cls_bpf before", Remedy: "use --mode auto, or --target nftables"}
	case mode != TC && isBare(dev):
		return &AttachError{Device: name, Cause: fmt.Sprintf("its packets have no Ethernet header (link type %s), which XDP needs", kind),
			Remedy: "use --mode auto, which filters this device at tc"}
	}
	return nil
}

// findDevice returns a device by its name. It returns an error if the device does not exist, or if the program cannot read its packets: XDP needs an
// Ethernet header, tc an Ethernet or an IP header.
func findDevice(name string) (netlink.Link, error) {
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return nil, &AttachError{Device: name, Cause: "no such device", Remedy: "`devices` of the policy, or --device, names it; `ip link` lists the devices of this host"}
	}
	kind := dev.Attrs().EncapType
	if kind == "ether" || kind == "loopback" || isBare(dev) && hasTC() {
		return dev, nil
	}
	if slices.Contains(ipsecKinds, dev.Type()) {
		return nil, &AttachError{Device: name, Cause: fmt.Sprintf("its packets (%s) may have the Ethernet header of the device by which they came encrypted", dev.Type()),
			Remedy: "apply with --target nftables, which filters it"}
	}
	return nil, &AttachError{Device: name, Cause: fmt.Sprintf("its packets have no Ethernet header (link type %s)", kind),
		Remedy: "apply with --target nftables, which filters it; or filter on the Ethernet device below it, through which its packets come"}
}

// DeviceExists returns nil if a device exists. Otherwise it returns the error that attaching to it would return.
func DeviceExists(name string) error {
	if _, err := netlink.LinkByName(name); err == nil {
		return nil
	}
	return Attachable(name)
}

// Attachable returns nil if a device exists and the program can read its packets. Otherwise it returns the error that attaching to it would return. Netfilter can
// filter every device.
func Attachable(name string) error {
	_, err := findDevice(name)
	return err
}
