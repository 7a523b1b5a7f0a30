package datapath

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Mode is where a device runs an XDP program.
type Mode string

// The modes.
const (
	Auto    Mode = "auto"    // native, or generic where the driver has no XDP
	Native  Mode = "native"  // in the driver, before the kernel has made anything of the frame
	Generic Mode = "generic" // in the kernel's receive path: any device, at several times the cost
)

// Device is a device that a program is attached to.
type Device struct {
	Name       string `json:"name"`
	Mode       Mode   `json:"mode"`
	Generation int    `json:"generation"`
	program    ebpf.ProgramID
	link       link.Link
}

// devices opens the links of all devices. A device that has gone takes its attachment with it; its link is left out.
func (s *State) devices() ([]*Device, error) {
	entries, err := os.ReadDir(s.path("links"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	var devices []*Device
	for _, e := range entries {
		d, err := s.device(unpinName(e.Name()))
		if err != nil {
			closeDevices(devices)
			return nil, err
		}
		if d != nil {
			devices = append(devices, d)
		}
	}
	return devices, nil
}

// device opens a device's link. It returns nil when the device has gone.
func (s *State) device(name string) (*Device, error) {
	l, err := link.LoadPinnedLink(s.linkPath(name), nil)
	if err != nil {
		return nil, fmt.Errorf("link of device %s: %w", name, err)
	}
	info, err := l.Info()
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("link of device %s: %w", name, err)
	}
	if x := info.XDP(); x == nil || x.Ifindex == 0 {
		return nil, l.Close()
	}
	d := &Device{Name: name, Mode: attachedMode(name), program: info.Program, link: l}
	return d, nil
}

func (s *State) linkPath(device string) string { return s.path("links", pinName(device)) }

func closeDevices(devices []*Device) {
	for _, d := range devices {
		d.link.Close()
	}
}

// attachedMode asks the kernel in which mode a device runs its program.
func attachedMode(name string) Mode {
	l, err := netlink.LinkByName(name)
	if err == nil && l.Attrs().Xdp != nil && l.Attrs().Xdp.AttachMode == attachedSKB {
		return Generic
	}
	return Native
}

// attachedSKB is XDP_ATTACHED_SKB of include/uapi/linux/if_link.h.
const attachedSKB = 2

// attach attaches the new program to a device that has none of ours, and pins the link.
func (s *swap) attach(name string, mode Mode) (*Device, error) {
	dev, err := findDevice(name)
	if err != nil {
		return nil, err
	}
	d, err := s.attachAs(dev, mode)
	if err != nil {
		return nil, err
	}
	path := s.state.linkPath(name)
	os.Remove(path) // of a device of that name that has gone
	if err := d.link.Pin(path); err != nil {
		d.link.Close()
		return nil, fmt.Errorf("pinning the link of device %s: %w", name, err)
	}
	return d, nil
}

func (s *swap) attachAs(dev netlink.Link, mode Mode) (*Device, error) {
	if mode != Generic {
		d, err := s.attachIn(dev, Native, link.XDPDriverMode)
		if err == nil {
			return d, nil
		}
		if mode == Native || !errors.Is(err, unix.EOPNOTSUPP) {
			return nil, explainAttach(dev, err)
		}
	}
	d, err := s.attachIn(dev, Generic, link.XDPGenericMode)
	if err != nil {
		return nil, explainAttach(dev, err)
	}
	return d, nil
}

func (s *swap) attachIn(dev netlink.Link, mode Mode, flags link.XDPAttachFlags) (*Device, error) {
	prog, err := s.programFor(mode)
	if err != nil {
		return nil, err
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: dev.Attrs().Index, Flags: flags})
	if err != nil {
		return nil, err
	}
	return &Device{Name: dev.Attrs().Name, Mode: mode, link: l}, nil
}

// programFor is the program that a device's mode takes. That for generic mode is loaded and pinned when first used,
// before anything holds it: verifying takes longest of all that an apply does.
func (s *swap) programFor(mode Mode) (*ebpf.Program, error) {
	if mode == Native {
		return s.program.Native(), nil
	}
	first := s.program.linear == nil
	prog, err := s.program.Linear()
	if err != nil || !first {
		return prog, err
	}
	return prog, pinClone(prog, s.state.path(generationName(s.number), pinLinear))
}

func findDevice(name string) (netlink.Link, error) {
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return nil, &AttachError{Device: name, Cause: "no such device", Remedy: "`ip link` lists the devices there are"}
	}
	return dev, nil
}

// DeviceExists returns the error that attaching to a device that does not exist would give, or nil.
func DeviceExists(name string) error {
	_, err := findDevice(name)
	return err
}
