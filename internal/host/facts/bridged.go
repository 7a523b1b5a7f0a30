package facts

import (
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// bridgeSettings have br_netfilter hand bridged packets to the hooks of IP, for each family. Docker sets the first.
var bridgeSettings = []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"}

// BridgedAsOwn finds the devices that are bridges whose bridged packets come to the hooks of IP with the bridge as their device, as if they were
// for this host, and the settings that do it. In prerouting nothing tells these packets: whether one is bridged is decided behind it
// (br_nf_pre_routing of net/bridge/br_netfilter_hooks.c). It returns nothing where the settings or devices cannot be read.
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
