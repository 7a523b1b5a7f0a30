package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Device is one end of a link.
type Device struct {
	Host  *Host
	Peer  *Device
	Name  string
	Index int // in the host's namespace
	MAC   net.HardwareAddr
	MTU   int
	Addrs []netip.Prefix

	options EndOptions
	link    netlink.Link
	napi    int // process identifier of the NAPI thread
}

// attachment is a program at a device. Close detaches it at once, also when another process holds its link.
type attachment struct{ link.Link }

// Close detaches the program and closes the link. Closing alone is not enough: a child that another thread has forked, and that
// has not executed its program yet, has a copy of the descriptor, and keeps the program attached.
func (a attachment) Close() error { return errors.Join(a.Detach(), a.Link.Close()) }

// AttachTC attaches a program for what enters a device at tc (TCX, Linux 6.6). It stays until the lab is closed.
func (l *Lab) AttachTC(d *Device, prog *ebpf.Program) error {
	var attached link.Link
	err := d.Host.Do(func() (err error) {
		attached, err = link.AttachTCX(link.TCXOptions{Program: prog, Interface: d.Index, Attach: ebpf.AttachTCXIngress})
		return err
	})
	if err != nil {
		return fmt.Errorf("attach to tc of device %s of host %s: %w", d.Name, d.Host.Name, err)
	}
	l.onClose(attachment{attached}.Close)
	return nil
}

// Attach attaches an XDP program to the device, natively. The program stays until the returned link or the lab is
// closed.
func (l *Lab) Attach(d *Device, prog *ebpf.Program) (link.Link, error) {
	var attached link.Link
	err := d.Host.Do(func() (err error) {
		attached, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: d.Index, Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attach to device %s of host %s: %w", d.Name, d.Host.Name, err)
	}
	l.onClose(func() error {
		// Closing a link twice is an error to os.File, but the caller may well have closed it.
		if err := attached.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			return fmt.Errorf("detach from device %s: %w", d.Name, err)
		}
		return nil
	})
	return attachment{attached}, nil
}
