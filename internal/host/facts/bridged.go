// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// bridgeSettings are settings that make br_netfilter pass bridged packets to the hooks of IP, one for each family. Docker sets the first.
var bridgeSettings = []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"}

// BridgedAsOwn returns the bridges among the devices whose bridged packets pass the hooks of IP with the name of the bridge, like packets for this
// host. It also returns the settings that cause this. At prerouting such packets cannot be distinguished, because the kernel decides later whether a
// packet is bridged (br_nf_pre_routing of net/bridge/br_netfilter_hooks.c). BridgedAsOwn returns nothing if the settings or devices cannot be read.
func BridgedAsOwn(devices []string) (bridges, settings []string) {
	for _, s := range bridgeSettings {
		if text, err := os.ReadFile("/proc/sys/net/bridge/" + s); err == nil && strings.TrimSpace(string(text)) == "1" {
			settings = append(settings, "net.bridge."+s)
		}
	}
	if settings == nil {
		return nil, nil
	}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, nil
	}
	for _, l := range links {
		if l.Type() == "bridge" && slices.Contains(devices, l.Attrs().Name) {
			bridges = append(bridges, l.Attrs().Name)
		}
	}
	return bridges, settings
}
