// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// device is a network device, with the properties that its driver reports. A property that the driver does not report is nil.
type device struct {
	name    string
	kind    string // the kernel's kind of device; "device" for hardware
	driver  string
	index   int
	mtu     int
	facing  bool             // whether packets from outside arrive on the device, as far as that is known
	below   []string         // the devices below it, which its packets pass first
	program *netlink.LinkXdp // the attached XDP program

	xdp      uint64 // a bit set of xdpBasic and so on
	xdpErr   error  // why the kernel does not report xdp
	features map[string]features.Feature
	channels *features.Channels
	rings    *features.Rings
}

// judged adds the device to a finding. It lowers the severity if no packets from outside arrive on the device.
func (d *device) judged(f Finding) Finding {
	f.Device = d.name
	if !d.facing {
		switch f.Severity {
		case Problem, Warning:
			f.Severity = Note
		case Note:
			f.Severity = OK
		}
	}
	return f
}

// eachDevice calls judge for all examined devices.
func eachDevice(h *host, id string, judge func(*device) []Finding) (found []Finding) {
	devices, err := h.devices()
	if err != nil {
		return []Finding{unseen(id, err)}
	}
	for _, d := range devices {
		for _, f := range judge(d) {
			found = append(found, d.judged(f))
		}
	}
	return found
}

// listDevices returns the devices to examine. These are the requested ones, or else the devices that are up and carry Ethernet frames. It leaves out
// ports whose packets are examined elsewhere, such as containers' devices on a bridge.
func listDevices(h *host) ([]*device, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing devices: %w", err)
	}
	outward := outwardDevices(h)
	family, familyErr := netlink.GenlFamilyGet("netdev")
	var list []*device
	for _, l := range links {
		a := l.Attrs()
		asked := slices.Contains(h.only, a.Name)
		if !asked && (len(h.only) > 0 || !worthLooking(l)) {
			continue
		}
		d := newDevice(h, l, links)
		d.facing = asked || l.Type() == "device" || outward[a.Name]
		if d.xdpErr = familyErr; familyErr == nil {
			d.xdp, d.xdpErr = xdpFeatures(family.ID, a.Index)
		}
		list = append(list, d)
	}
	for _, name := range h.only {
		if !slices.ContainsFunc(list, func(d *device) bool { return d.name == name }) {
			return nil, wording.Hinted("no such device: "+name, "`ip link` lists the devices there are")
		}
	}
	return list, nil
}

func worthLooking(l netlink.Link) bool {
	a := l.Attrs()
	return a.Flags&net.FlagUp != 0 && a.Flags&net.FlagLoopback == 0 && a.EncapType == "ether" &&
		(l.Type() == "device" || a.MasterIndex == 0)
}

func newDevice(h *host, l netlink.Link, all []netlink.Link) *device {
	a := l.Attrs()
	d := &device{
		name: a.Name, kind: l.Type(), index: a.Index, mtu: a.MTU, below: below(l, all),
	}
	if a.Xdp != nil && a.Xdp.ProgId != 0 {
		d.program = a.Xdp
	}
	// A property that the driver does not report stays nil.
	d.driver, _ = h.eth.Driver(a.Name)
	d.features, _ = h.eth.Features(a.Name)
	if c, err := h.eth.Channels(a.Name); err == nil {
		d.channels = &c
	}
	if r, err := h.eth.Rings(a.Name); err == nil {
		d.rings = &r
	}
	return d
}

// below lists the devices below a device, which its packets pass first: the ports of a bridge or bond, or the parent of a VLAN or a similar device.
func below(l netlink.Link, all []netlink.Link) (names []string) {
	for _, other := range all {
		a := other.Attrs()
		stacked := slices.Contains([]string{"vlan", "macvlan", "ipvlan"}, l.Type()) && a.Index == l.Attrs().ParentIndex
		if a.MasterIndex == l.Attrs().Index || stacked {
			names = append(names, a.Name)
		}
	}
	return names
}

// outwardDevices returns the devices of the default routes. /proc/net/route lists these routes first, so they are found although only a part of a
// large file is read.
func outwardDevices(h *host) map[string]bool {
	names := map[string]bool{}
	table, err := h.read(netFile("route"))
	if err == nil {
		for _, n := range defaultRoutes(table) {
			names[n] = true
		}
	}
	routes, err := netlink.RouteGet(net.ParseIP("2000::1")) // any address of the Internet
	for _, r := range routes {
		if l, e := netlink.LinkByIndex(r.LinkIndex); err == nil && e == nil {
			names[l.Attrs().Name] = true
		}
	}
	return names
}

// defaultRoutes returns the devices of the default routes in the text of /proc/net/route.
func defaultRoutes(table string) (names []string) {
	for line := range strings.Lines(table) {
		f := strings.Fields(line) // device, destination, gateway, flags, …, mask
		if len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" && !slices.Contains(names, f[0]) {
			names = append(names, f[0])
		}
	}
	return names
}

// Numbers of include/uapi/linux/netdev.h: the family netdev of generic netlink, and enum netdev_xdp_act.
const (
	netdevGet         = 1 // NETDEV_CMD_DEV_GET
	netdevIndex       = 1 // NETDEV_A_DEV_IFINDEX
	netdevXDPFeatures = 3 // NETDEV_A_DEV_XDP_FEATURES

	xdpBasic     = 1 << 0 // the driver runs programs
	xdpRedirect  = 1 << 1 // a program can send frames to other devices
	xdpScattered = 1 << 5 // a frame may be in several buffers (RX_SG)
)

// errNoXDPFeatures is the error for kernels before 6.3, which do not report XDP features.
var errNoXDPFeatures = errors.New("this kernel does not tell what XDP a driver has: it takes Linux 6.3")

// xdpFeatures asks the kernel which XDP features the driver of a device supports.
func xdpFeatures(family uint16, index int) (uint64, error) {
	req := nl.NewNetlinkRequest(int(family), 0)
	req.AddData(&nl.Genlmsg{Command: netdevGet, Version: 1})
	req.AddData(nl.NewRtAttr(netdevIndex, nl.Uint32Attr(uint32(index))))
	answers, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return 0, fmt.Errorf("asking for XDP features: %w", err)
	}
	for _, a := range answers {
		attributes, err := nl.ParseRouteAttrAsMap(a[nl.SizeofGenlmsg:])
		if value := attributes[netdevXDPFeatures].Value; err == nil && len(value) == 8 {
			return binary.NativeEndian.Uint64(value), nil
		}
	}
	return 0, errNoXDPFeatures
}
