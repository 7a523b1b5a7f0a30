// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// Paths describe the paths of packets through this host that the placement of rules depends on.
type Paths struct {
	Tracked  bool // whether conntrack has connections, so that it processes packets
	NAT      bool
	Bypassed bool // whether packets that XDP or raw sees may bypass later stages, or reach them with another device name
}

// Survey finds the paths in this network namespace and on the policy's devices.
func Survey(ctx context.Context, devices []string) (p Paths, err error) {
	p.Tracked = Tracks()
	if p.NAT, err = netfilter.Translates(ctx); err != nil {
		return p, err
	}
	if p.Bypassed, err = netfilter.Offloads(ctx); err != nil || p.Bypassed {
		return p, err
	}
	p.Bypassed, err = leads(devices)
	return p, err
}

// Tracks reports whether conntrack knows any connection.
func Tracks() bool { return Sysctl("netfilter/nf_conntrack_count", 0)[0] > 0 }

// Fill adds the paths to a mix of packets.
func (p Paths) Fill(mix *cost.Mix) {
	mix.Tracked, mix.NAT, mix.Bypassed = p.Tracked, p.NAT, p.Bypassed
}

// leads reports whether packets of a device pass to another device before IP sees them, and then have the other device's name. That is so if the
// device is a port of a bridge, bond or VRF, or if other devices are on top of it. VLANs called DEVICE.N are an exception, because netfilter's rules
// match them. leads also returns true if IPsec has policies: decrypted packets pass the device again, at IP only.
func leads(devices []string) (bool, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return false, fmt.Errorf("devices: %w", err)
	}
	for _, l := range links {
		if slices.Contains(devices, l.Attrs().Name) && (l.Attrs().MasterIndex != 0 || slices.ContainsFunc(links, standsOn(l))) {
			return true, nil
		}
	}
	policies, err := netlink.XfrmPolicyList(netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, unix.EPROTONOSUPPORT) { // a kernel without IPsec
		return false, fmt.Errorf("policies of IPsec: %w", err)
	}
	return len(policies) > 0, nil
}

// standsOn returns a test for devices on top of below whose name does not start with the name of below and a dot.
func standsOn(below netlink.Link) func(netlink.Link) bool {
	return func(l netlink.Link) bool {
		return l.Attrs().ParentIndex == below.Attrs().Index && l.Type() != "veth" && // the parent of a veth is the veth's other end
			!strings.HasPrefix(l.Attrs().Name, below.Attrs().Name+".")
	}
}
