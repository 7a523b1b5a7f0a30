package datapath

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Device is a device that a program is attached to.
type Device struct {
	Name       string `json:"name"` // that it has now, which need not be the one it was attached by
	Mode       Mode   `json:"mode"`
	Generation int    `json:"generation"`
	ifindex    int
	pin        string // file in the directory of links
	program    ebpf.ProgramID
	link       link.Link

	sides [2]sideLink // in the order of sides
}

// devices opens the links of all devices. A device that has gone takes its attachment with it; its link is left out.
func (s *State) devices() ([]*Device, error) {
	devices, _, err := s.links()
	return devices, err
}

// Gone lists devices that had a policy and are no longer there: removed, or moved to another network namespace. A
// device that comes back under such a name is not filtered until the next Install.
func (s *State) Gone() ([]string, error) {
	devices, gone, err := s.links()
	closeDevices(devices)
	var names []string
	for _, d := range gone {
		names = append(names, d.Name)
	}
	return names, err
}

// links opens the links of all devices. gone are those whose device has gone, with the name it had and a closed link.
func (s *State) links() (devices, gone []*Device, err error) {
	entries, err := os.ReadDir(s.path(dirLinks))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("state directory: %w", err)
	}
	for _, e := range entries {
		d, err := s.device(e.Name())
		switch {
		case errors.Is(err, os.ErrNotExist): // another command has removed or renamed it since
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

// device opens a device's link. When the device has gone, it has the number 0 and a link that is closed.
func (s *State) device(pin string) (*Device, error) {
	l, err := link.LoadPinnedLink(s.path(dirLinks, pin), nil)
	if err != nil {
		return nil, err
	}
	info, err := l.Info()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	gone := &Device{Name: unpinName(pin), pin: pin, program: info.Program, link: l}
	x := info.XDP()
	if x == nil || x.Ifindex == 0 {
		return gone, l.Close()
	}
	dev, err := netlink.LinkByIndex(int(x.Ifindex))
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) || err == nil && (dev.Attrs().Xdp == nil || !dev.Attrs().Xdp.Attached) {
		return gone, l.Close() // it has moved to another network namespace; another may have its number here
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	d := &Device{
		Name: dev.Attrs().Name, Mode: attachedMode(dev), ifindex: int(x.Ifindex), pin: pin, program: info.Program, link: l,
	}
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

// attachedMode is the mode in which a device runs its program.
func attachedMode(dev netlink.Link) Mode {
	if dev.Attrs().Xdp.AttachMode == attachedSKB {
		return Generic
	}
	return Native
}

// attachedSKB is XDP_ATTACHED_SKB of include/uapi/linux/if_link.h.
const attachedSKB = 2

// passingPrefix is a prefix that no name of pinName has.
const passingPrefix = "%if"

// passingName is the temporary name of a link's pin, until a swap is done, and while pins of devices that exchanged
// their names are renamed.
func passingName(ifindex int) string { return passingPrefix + strconv.Itoa(ifindex) }

// nameLinks pins the links under the names that the devices have now, and removes all others.
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

// renameLinks pins the links under the names that the devices have now, over those of devices that have gone.
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

// rename renames a link's pin, over one that is there.
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
