package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/cost"
	"github.com/floodwall/floodwall/internal/netfilter"
)

// Surroundings are what a placement depends on beside the packets.
type Surroundings struct {
	Tracked  bool // conntrack knows connections, so it looks at packets
	NAT      bool
	Bypassed bool // packets that XDP sees, or raw, may not come to later stages under the name of the device
}

// Survey looks at this network namespace and at the policy's devices.
func Survey(ctx context.Context, devices []string) (s Surroundings, err error) {
	s.Tracked = sysctl("netfilter/nf_conntrack_count", 0)[0] > 0
	if s.NAT, err = netfilter.Translates(ctx); err != nil {
		return s, err
	}
	if s.Bypassed, err = netfilter.Offloads(ctx); err != nil || s.Bypassed {
		return s, err
	}
	s.Bypassed, err = leads(devices)
	return s, err
}

// Fill adds to a mix of packets how they get about.
func (s Surroundings) Fill(mix *cost.Mix) {
	mix.Tracked, mix.NAT, mix.Bypassed = s.Tracked, s.NAT, s.Bypassed
}

// surveyed is a mix of packets with how they get about on these devices now; nil when fewer than least have arrived, for whom
// nothing is surveyed.
func surveyed(ctx context.Context, mix cost.Mix, devices []string, least uint64) (*cost.Mix, error) {
	if mix.Arrived < least {
		return nil, nil
	}
	around, err := Survey(ctx, devices)
	if err != nil {
		return nil, err
	}
	around.Fill(&mix)
	return &mix, nil
}

// leads reports whether packets go on from a device to another one before IP sees them, which then has their name: the
// device is a port of a bridge, bond or VRF, or others stand on it, except VLANs that are called DEVICE.N, which netfilter's
// rules know. What IPsec unwraps comes by once more, at IP only.
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

// standsOn tells the devices that take packets off another one under a name that does not begin with its own.
func standsOn(below netlink.Link) func(netlink.Link) bool {
	return func(l netlink.Link) bool {
		return l.Attrs().ParentIndex == below.Attrs().Index && l.Type() != "veth" && // whose parent is its other end
			!strings.HasPrefix(l.Attrs().Name, below.Attrs().Name+".")
	}
}
