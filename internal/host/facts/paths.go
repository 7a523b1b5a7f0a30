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

// Paths describe the paths of packets through this host, as far as the placement of rules depends on them.
type Paths struct {
	Tracked  bool // conntrack knows connections, so it looks at packets
	NAT      bool
	Bypassed bool // packets that XDP sees, or raw, may not come to later stages under the name of the device
}

// Survey looks at this network namespace and at the policy's devices.
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
