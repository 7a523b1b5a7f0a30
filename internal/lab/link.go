// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LinkOptions describes a link between two hosts. The zero value is suitable for most links.
type LinkOptions struct {
	A, B EndOptions
	MTU  int // of both ends; 0: 1500
}

// EndOptions describes one end of a link.
type EndOptions struct {
	Name  string           // of the device; empty: the name of the host at the other end, cut to 15 bytes
	MAC   net.HardwareAddr // empty: the kernel chooses
	Addrs []netip.Prefix   // the end's addresses, with the prefixes that are on this link
	CPU   NAPI             // the CPU that processes received packets

	// Urgent keeps most other processes off the receiving CPU while packets arrive; for measurements.
	Urgent bool

	// First gives an urgent end with little traffic priority over the others on its CPU. Threads of equal priority take turns of 100 ms (sched(7),
	// SCHED_RR). Interrupts would take 64 packets from each device in turn.
	First bool

	// Queue makes up to 1,000 frames of local senders wait while the other end is full, as on a network card (pfifo_fast). A veth has no queue by
	// default. Since Linux 6.16 it makes frames wait; before, they are lost.
	Queue bool

	// PartialChecksums leaves the checksums of locally sent packets for a device to complete. A veth never does that, so an XDP program at the other
	// end sees wrong ones. By default, checksums are computed.
	PartialChecksums bool

	// Untuned leaves the device as the kernel makes it: with all of its offloads, and without a NAPI thread. So the sending CPU also receives, and
	// CPU and Urgent have no effect. Such a device takes no frames of a Source.
	Untuned bool
}

// NAPI is the CPU on which an end receives.
type NAPI int

// AnyCPU leaves the choice of the CPU to the scheduler.
const AnyCPU NAPI = 0

// OnCPU makes the end receive on one CPU, numbered from 0.
func OnCPU(n int) NAPI { return NAPI(n + 1) }

// Connect connects two hosts by a veth pair with one queue in each direction. Both ends are up. They receive through their own NAPI threads, with and
// without an XDP program, unless they are untuned. They have each other's addresses without ARP or neighbor discovery, and send nothing by
// themselves.
func (l *Lab) Connect(a, b *Host, o LinkOptions) (*Device, *Device, error) {
	left, right, err := l.connect(a, b, o)
	if err != nil {
		return nil, nil, fmt.Errorf("link %s to %s: %w", a.Name, b.Name, err)
	}
	return left, right, nil
}

func (l *Lab) connect(a, b *Host, o LinkOptions) (*Device, *Device, error) {
	left, right := newEnd(a, b, o.A), newEnd(b, a, o.B)
	left.Peer, right.Peer = right, left
	if err := addVeth(left, right, o); err != nil {
		return nil, nil, err
	}
	l.onClose(left.remove)
	// Each step needs the previous step at both ends. An end accepts frames from sources only if the other end had GRO on when it came up (kernel
	// drivers/net/veth.c, veth_set_xdp_features).
	for _, step := range []func(*Device) error{(*Device).find, tuned((*Device).offload), (*Device).configure, tuned((*Device).startNAPI), (*Device).waitUp} {
		for _, d := range []*Device{left, right} {
			if err := step(d); err != nil {
				return nil, nil, fmt.Errorf("device %s: %w", d.Name, err)
			}
		}
	}
	return left, right, nil
}

// tuned skips a step for untuned ends.
func tuned(step func(*Device) error) func(*Device) error {
	return func(d *Device) error {
		if d.options.Untuned {
			return nil
		}
		return step(d)
	}
}

// newEnd returns the future device of a host.
func newEnd(host, other *Host, o EndOptions) *Device {
	d := &Device{Host: host, Name: o.Name, Addrs: o.Addrs, options: o}
	if d.Name == "" {
		d.Name = other.Name[:min(len(other.Name), unix.IFNAMSIZ-1)]
	}
	return d
}

func addVeth(left, right *Device, o LinkOptions) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = left.Name, o.A.MAC, o.MTU
	attrs.NumRxQueues, attrs.NumTxQueues = 1, 1
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr = right.Name, o.B.MAC
	veth.PeerNamespace = netlink.NsFd(right.Host.ns.Fd())
	if err := left.Host.links.LinkAdd(veth); err != nil {
		return fmt.Errorf("new veth pair %s, %s: %w", left.Name, right.Name, err)
	}
	return nil
}

// find reads the values that the kernel chose for the device.
func (d *Device) find() error {
	link, err := d.Host.links.LinkByName(d.Name)
	if err != nil {
		return err
	}
	d.link, d.Index, d.MTU = link, link.Attrs().Index, link.Attrs().MTU
	d.MAC = link.Attrs().HardwareAddr
	return nil
}

// configure sets up the device. The device has no ARP flag and no link-local address. So the kernel never sends ARP, neighbor discovery, duplicate
// address detection or multicast listener reports, and counters count only the lab's traffic.
func (d *Device) configure() error {
	if err := d.Host.Sysctl("ipv6/conf/"+d.Name+"/addr_gen_mode", "1"); err != nil && ipv6Enabled() {
		return err
	}
	if err := d.Host.links.LinkSetARPOff(d.link); err != nil {
		return fmt.Errorf("arp off: %w", err)
	}
	if err := d.Host.links.LinkSetUp(d.link); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	if err := d.queue(); err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	for _, p := range d.Addrs {
		addr := &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}
		if err := d.Host.links.AddrAdd(d.link, addr); err != nil {
			return fmt.Errorf("address %s: %w", p, err)
		}
	}
	return d.meetNeighbor()
}

// queue gives the device a queue if its options request one.
func (d *Device) queue() error {
	if !d.options.Queue {
		return nil
	}
	attrs := netlink.QdiscAttrs{LinkIndex: d.Index, Parent: netlink.HANDLE_ROOT}
	return d.Host.links.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "pfifo_fast"})
}

// meetNeighbor adds the peer's addresses as static neighbors.
func (d *Device) meetNeighbor() error {
	for _, p := range d.Peer.Addrs {
		err := d.Host.links.NeighSet(&netlink.Neigh{
			LinkIndex: d.Index, State: netlink.NUD_PERMANENT, IP: p.Addr().AsSlice(), HardwareAddr: d.Peer.MAC,
		})
		if err != nil {
			return fmt.Errorf("neighbor %s: %w", p.Addr(), err)
		}
	}
	return nil
}

// waitUp waits until the kernel has noticed the carrier. On a busy machine this takes longer (net/core/link_watch.c). Until then a host may have no
// IPv6 route to the other one.
func (d *Device) waitUp() error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		link, err := d.Host.links.LinkByIndex(d.Index)
		switch {
		case err != nil:
			return err
		case link.Attrs().OperState == netlink.OperUp:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%v after a minute, not up", link.Attrs().OperState)
		}
	}
}

// remove deletes the pair. Its NAPI threads are gone when this returns.
func (d *Device) remove() error {
	link, err := d.Host.links.LinkByName(d.Name)
	if err != nil {
		return nil // already removed with the other end
	}
	if err := d.Host.links.LinkDel(link); err != nil {
		return fmt.Errorf("remove device %s: %w", d.Name, err)
	}
	return nil
}

// ipNet converts p to the older type of netlink.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// ParseAddrs parses addresses with prefix lengths, separated by spaces, for EndOptions. It is for literals: it panics on a mistake.
func ParseAddrs(s string) (addrs []netip.Prefix) {
	for _, f := range strings.Fields(s) {
		addrs = append(addrs, netip.MustParsePrefix(f))
	}
	return addrs
}
