// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
)

// Unfiltered is a device of this host whose packets pass none of the devices that are filtered.
type Unfiltered struct {
	Name string
	Kind string // "a tunnel", "a bridge", or "" for other devices
}

// Names returns the names of devices.
func Names(list []Unfiltered) (names []string) {
	for _, u := range list {
		names = append(names, u.Name)
	}
	return names
}

// UnfilteredBeside returns the devices that are up and whose packets pass none of the given devices. It leaves out ports of a bridge or a bond, which
// stand for it, and devices by which no other host can send.
func UnfilteredBeside(devices []string) (list []Unfiltered, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing devices: %w", err)
	}
	filtered := func(index int) bool {
		return slices.ContainsFunc(links, func(l netlink.Link) bool { return l.Attrs().Index == index && slices.Contains(devices, l.Attrs().Name) })
	}
	for _, l := range links {
		attrs := l.Attrs()
		silent := attrs.Flags&net.FlagLoopback != 0 || slices.Contains([]string{"dummy", "ifb", "nlmon", "can", "vcan"}, l.Type())
		if attrs.Flags&net.FlagUp == 0 || silent || attrs.MasterIndex != 0 || slices.ContainsFunc(carriers(links, attrs.Index), filtered) {
			continue
		}
		u := Unfiltered{Name: attrs.Name}
		switch {
		case l.Type() == "bridge":
			u.Kind = "a bridge"
		case len(attrs.HardwareAddr) != 6 || slices.Contains([]string{"tun", "vxlan", "geneve", "gretap", "ip6gretap"}, l.Type()):
			u.Kind = "a tunnel"
		}
		list = append(list, u)
	}
	return list, nil
}
