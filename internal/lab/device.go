// SPDX-License-Identifier: Apache-2.0

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

// Device is a network device at one end of a link.
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
	napi    int // thread ID of the NAPI thread
}

// attachment is a program that is attached to a device. Close detaches the program at once, even if another process has its link open.
type attachment struct{ link.Link }

// Close detaches the program and closes the link. Without Detach, the program could stay attached: between fork and exec, a child of another thread
// has a copy of the file descriptor.
func (a attachment) Close() error { return errors.Join(a.Detach(), a.Link.Close()) }

// AttachTC attaches a program to the tc ingress hook of a device (TCX, Linux 6.6). The program stays until the lab is closed.
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

// Attach attaches an XDP program to the device in native mode. The program stays until the returned link or the lab is closed.
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
		// os.File returns an error if a link is closed twice. But the caller may already have closed this link.
		if err := attached.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			return fmt.Errorf("detach from device %s: %w", d.Name, err)
		}
		return nil
	})
	return attachment{attached}, nil
}
