// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

// TestTakers has devices that receive the frames of other devices. It calls an internal function, because not every kernel can create such devices.
func TestTakers(t *testing.T) {
	attrs := func(name string, index, parent, master int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: name, Index: index, ParentIndex: parent, MasterIndex: master}
	}
	links := []netlink.Link{
		&netlink.Device{LinkAttrs: attrs("lo", 1, 0, 0)},
		&netlink.Device{LinkAttrs: attrs("eth0", 2, 0, 5)},
		&netlink.Device{LinkAttrs: attrs("eth1", 3, 0, 5)},
		&netlink.Device{LinkAttrs: attrs("eth2", 4, 0, 0)},
		&netlink.Bond{LinkAttrs: attrs("bond0", 5, 0, 0)},
		&netlink.Vlan{LinkAttrs: attrs("bond0.5", 6, 5, 7)},
		&netlink.Bridge{LinkAttrs: attrs("br0", 7, 0, 0)},
		&netlink.Veth{LinkAttrs: attrs("veth0", 8, 4, 7)}, // 4 is an index of another namespace
		&netlink.Macvlan{LinkAttrs: attrs("vrrp.51", 9, 4, 0)},
		&netlink.Vlan{LinkAttrs: attrs("vrrp.51.9", 10, 9, 0)},
	}
	for device, want := range map[string][]string{
		"lo":      {"lo"},
		"eth0":    {"bond0", "bond0.5", "br0", "eth0"},
		"bond0":   {"bond0", "bond0.5", "br0", "eth0", "eth1"},
		"eth2":    {"eth2", "vrrp.51", "vrrp.51.9"},
		"veth0":   {"br0", "veth0"},
		"missing": nil,
	} {
		var got []string
		for _, l := range takers(links, []string{device}) {
			got = append(got, l.Attrs().Name)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", device, diff)
		}
	}
	if got := takers(links, []string{"eth2", "eth0"}); got[0].Attrs().Name != "eth0" || got[1].Attrs().Name != "eth2" {
		t.Errorf("the devices themselves do not come first: %v", got)
	}
}
