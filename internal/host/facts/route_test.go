// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

// TestCarriers has devices on top of other devices. It calls an internal function, because not every kernel can create such devices.
func TestCarriers(t *testing.T) {
	attrs := func(index, parent, master int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Index: index, ParentIndex: parent, MasterIndex: master}
	}
	links := []netlink.Link{
		&netlink.Device{LinkAttrs: attrs(1, 0, 0)}, // lo
		&netlink.Device{LinkAttrs: attrs(2, 0, 5)}, // in bond 5
		&netlink.Device{LinkAttrs: attrs(3, 0, 5)},
		&netlink.Device{LinkAttrs: attrs(4, 0, 0)},
		&netlink.Bond{LinkAttrs: attrs(5, 0, 0)},
		&netlink.Vlan{LinkAttrs: attrs(6, 5, 7)}, // on the bond, in bridge 7
		&netlink.Bridge{LinkAttrs: attrs(7, 0, 0)},
		&netlink.Veth{LinkAttrs: attrs(8, 4, 7)}, // 4 is an index of another namespace
		&netlink.Vlan{LinkAttrs: attrs(9, 4, 0)},
	}
	for index, want := range map[int][]int{
		1: {1}, 2: {2}, 5: {2, 3, 5}, 6: {2, 3, 5, 6}, 7: {2, 3, 5, 6, 7, 8}, 8: {8}, 9: {4, 9},
	} {
		got := carriers(links, index)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("device %d (-want +got):\n%s", index, diff)
		}
	}
}
