// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Device is a device that has a program attached.
type Device struct {
	Name       string `json:"name"` // the present name, which may differ from the name when the program was attached
	Mode       Mode   `json:"mode"`
	Generation int    `json:"generation"`

	Since time.Time `json:"-"` // when the device got a program in this mode: then its link was pinned, and an apply only changes the program of the link

	NotNative *AttachError `json:"-"` // why the device refused native mode, if it has just got another mode therefore

	Move *Move `json:"-"` // the change of its mode that was just made; nil: none

	ifindex int
	bare    bool   // its packets begin with the IP header
	pin     string // the file name of the link in the directory of links
	program ebpf.ProgramID
	link    pinnable

	sides [2]sideLink // in the order of the variable sides
}

// devices opens the links of all devices. It leaves out the links of devices that have gone away, because these are no longer attached.
func (s *State) devices() ([]*Device, error) {
	devices, _, err := s.links()
	return devices, err
}

// Gone lists devices of the policy that no longer exist: they were removed, or moved to another network namespace. A new device with such a name is
// not filtered until the next Install.
func (s *State) Gone() ([]string, error) {
	devices, gone, err := s.links()
	closeDevices(devices)
	var names []string
	for _, d := range gone {
		names = append(names, d.Name)
	}
	return names, err
}

// links opens the links of all devices. gone lists the devices that have gone away, under their old names; their links are closed.
func (s *State) links() (devices, gone []*Device, err error) {
	entries, err := os.ReadDir(s.path(dirLinks))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("state directory: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), passingPrefix) && strings.HasSuffix(e.Name(), newSuffix) {
			continue
		}
		d, err := s.device(e.Name())
		switch {
		case errors.Is(err, os.ErrNotExist): // another command has removed or renamed the link meanwhile
		case err != nil:
			closeDevices(devices)
			return nil, nil, fmt.Errorf("link of device %s: %w", unpinName(e.Name()), err)
		case d.ifindex != 0:
			devices = append(devices, d)
		case !strings.HasPrefix(e.Name(), passingPrefix):
			gone = append(gone, d)
		}
	}
	return devices, gone, nil
}

// device opens the link of a device. If the device has gone away, its index is 0 and its link is closed.
func (s *State) device(pin string) (*Device, error) {
	l, on, err := openLink(s.path(dirLinks, pin))
	if err != nil {
		return nil, err
	}
	pinned, err := os.Stat(s.path(dirLinks, pin))
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	gone := &Device{Name: unpinName(pin), pin: pin, program: on.program, link: l}
	ifindex := on.ifindex
	if ifindex == 0 {
		return gone, l.Close()
	}
	dev, err := netlink.LinkByIndex(ifindex)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) {
		return gone, l.Close()
	}
	var mode Mode
	if err == nil {
		mode, err = on.mode(dev)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if mode == "" {
		return gone, l.Close() // the device has moved to another network namespace, and another device here has its index
	}
	d := &Device{Name: dev.Attrs().Name, Mode: mode, Since: pinned.ModTime().UTC(), ifindex: ifindex, bare: isBare(dev), pin: pin, program: on.program, link: l}
	if err := s.openSides(d); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return d, nil
}

func closeDevices(devices []*Device) {
	for _, d := range devices {
		d.link.Close()
		d.closeSides()
	}
}

// attached says where the main program of a device is attached.
type attached struct {
	ifindex int // 0 if the device has gone away
	program ebpf.ProgramID
	id      link.ID // 0 of a classifier
	tc      bool
}

// openLink opens the attachment behind a pin.
func openLink(path string) (pinnable, attached, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if err == nil {
		info, err := l.Info()
		if err != nil {
			return nil, attached{}, errors.Join(err, l.Close())
		}
		on := attached{program: info.Program, id: info.ID}
		if x := info.XDP(); x != nil {
			on.ifindex = int(x.Ifindex)
		} else if x := info.TCX(); x != nil {
			on.ifindex, on.tc = int(x.Ifindex), true
		}
		return l, on, nil
	}
	if hasTCX() || errors.Is(err, os.ErrNotExist) {
		return nil, attached{}, err
	}
	c, err := loadMarker(path)
	if err != nil {
		return nil, attached{}, err
	}
	on := attached{ifindex: c.ifindex, tc: true}
	if on.program, err = c.program(); on.program == 0 {
		on.ifindex = 0
	}
	return c, on, err
}

// mode returns the mode in which a device runs the program. It returns "" if the device does not have the link.
func (on attached) mode(dev netlink.Link) (Mode, error) {
	if on.tc && on.id == 0 {
		return TC, nil
	}
	if on.tc {
		has, err := hasLink(dev.Attrs().Index, ebpf.AttachTCXIngress, on.id)
		if !has || err != nil {
			return "", err
		}
		return TC, nil
	}
	switch x := dev.Attrs().Xdp; {
	case x == nil || !x.Attached:
		return "", nil
	case x.AttachMode == attachedSKB:
		return Generic, nil
	}
	return Native, nil
}

// hasLink reports whether a device has a link of TCX at a hook. A device that does not exist has none: it may go at any time.
func hasLink(ifindex int, hook ebpf.AttachType, want link.ID) (bool, error) {
	there, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: hook})
	if errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(there.Programs, func(p link.AttachedProgram) bool { id, ok := p.LinkID(); return ok && id == want }), nil
}

// attachedSKB is XDP_ATTACHED_SKB of include/uapi/linux/if_link.h.
const attachedSKB = 2

// passingPrefix is the prefix of temporary names. No result of pinName has it.
const passingPrefix = "%if"

// newSuffix is the end of the temporary name of a link that is to replace another one of its device. A command that died may have left it beside that one, so it
// does not count, and the next swap removes it.
const newSuffix = "-new"

// passingName returns the temporary name of a link's pin. This name is used until a swap is complete. It is also used while pins are renamed, because
// devices may have exchanged their names.
func passingName(ifindex int) string { return passingPrefix + strconv.Itoa(ifindex) }

// nameLinks renames the pins of the links to the present names of the devices. It removes all other pins.
func (s *State) nameLinks(devices []*Device) error {
	if err := s.renameLinks(devices); err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, d := range devices {
		keep[d.pin] = true
	}
	entries, err := os.ReadDir(s.path(dirLinks))
	for _, e := range entries {
		if !keep[e.Name()] {
			err = errors.Join(err, os.Remove(s.path(dirLinks, e.Name())))
		}
	}
	return err
}

// renameLinks renames the pins of the links to the present names of the devices. It overwrites pins of devices that have gone away.
func (s *State) renameLinks(devices []*Device) error {
	for _, d := range devices {
		if d.pin != pinName(d.Name) {
			if err := s.rename(d, passingName(d.ifindex)); err != nil {
				return err
			}
		}
	}
	for _, d := range devices {
		if err := s.rename(d, pinName(d.Name)); err != nil {
			return err
		}
	}
	return nil
}

// rename renames a link's pin, and overwrites an existing one.
func (s *State) rename(d *Device, pin string) error {
	if d.pin == pin {
		return nil
	}
	if err := os.Rename(s.path(dirLinks, d.pin), s.path(dirLinks, pin)); err != nil {
		return fmt.Errorf("link of device %s: %w", d.Name, err)
	}
	d.pin = pin
	return nil
}
