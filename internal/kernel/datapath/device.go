package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Mode is where a device runs an XDP program.
type Mode string

// The modes.
const (
	Auto    Mode = "auto"    // native, or generic where the driver has no XDP or does not keep to it
	Native  Mode = "native"  // in the driver, before the kernel has made anything of the frame
	Generic Mode = "generic" // in the kernel's receive path: any device, at several times the cost
)

// attach attaches the new program to a device that has none of ours, and pins the link under a passing name: one of the
// device's own may be there still, from before it was gone, and is to stay if the swap is undone.
func (s *swap) attach(dev netlink.Link, mode Mode) (*Device, error) {
	index := dev.Attrs().Index
	d := &Device{Name: dev.Attrs().Name, ifindex: index, pin: passingName(index)}
	if err := s.state.openSides(d); err != nil { // what a command left that died
		return nil, err
	}
	err := s.updateSides(d, true, false)
	if err == nil {
		err = s.attachAs(d, dev, mode)
	}
	if err != nil {
		return nil, errors.Join(err, s.state.releaseSides(d))
	}
	if err := d.link.Pin(s.state.path(dirLinks, d.pin)); err != nil {
		err = fmt.Errorf("pinning the link of device %s: %w", d.Name, err)
		return nil, errors.Join(err, d.link.Close(), s.state.releaseSides(d))
	}
	return d, nil
}

func (s *swap) attachAs(d *Device, dev netlink.Link, mode Mode) error {
	if mode == Native || mode == Auto && !Forgetful(d.Name) {
		err := s.attachIn(d, Native, link.XDPDriverMode)
		if err == nil {
			return nil
		}
		if mode == Native || !errors.Is(err, unix.EOPNOTSUPP) {
			return explainAttach(dev, err)
		}
	}
	if err := s.attachIn(d, Generic, link.XDPGenericMode); err != nil {
		return explainAttach(dev, err)
	}
	return nil
}

func (s *swap) attachIn(d *Device, mode Mode, flags link.XDPAttachFlags) error {
	prog, err := s.programFor(mode, true, false)
	if err != nil {
		return err
	}
	d.Mode = mode
	d.link, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: d.ifindex, Flags: flags})
	return err
}

// findDevice finds a device whose frames the program can read: they begin with an Ethernet header.
func findDevice(name string) (netlink.Link, error) {
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return nil, &AttachError{Device: name, Cause: "no such device", Remedy: "`devices` of the policy, or --device, names it; `ip link` lists the devices of this host"}
	}
	if kind := dev.Attrs().EncapType; kind != "ether" && kind != "loopback" {
		return nil, &AttachError{Device: name, Cause: fmt.Sprintf("its packets have no Ethernet header (link type %s)", kind),
			Remedy: "apply with --target nftables, which filters it; or filter on the Ethernet device below it, through which its packets come"}
	}
	return dev, nil
}

// DeviceExists returns the error that attaching to a device would give because there is none of that name, or nil.
func DeviceExists(name string) error {
	if _, err := netlink.LinkByName(name); err == nil {
		return nil
	}
	return Attachable(name)
}

// Attachable returns the error that attaching to a device would give because there is none of that name, or none with Ethernet frames; or nil.
// Netfilter filters the latter all the same.
func Attachable(name string) error {
	_, err := findDevice(name)
	return err
}
