package importer

import (
	"fmt"
	"slices"
	"strings"
)

// holds reports whether packets that come in through a device pass the test.
func (t deviceTest) holds(device string) bool {
	return slices.ContainsFunc(t.names, func(name string) bool {
		prefix, wild := strings.CutSuffix(name, "*")
		return name == device || wild && strings.HasPrefix(device, prefix)
	}) != t.not
}

// aside says why a rule with such a test is none of the policy's.
func (t deviceTest) aside(devices []string) string {
	switch {
	case t.not:
		return fmt.Sprintf("is not about packets that come in through %s", strings.Join(devices, ", "))
	case len(t.names) == 1 && t.names[0] == "lo":
		return "implied: the policy filters no packets of the host with itself"
	}
	return fmt.Sprintf("is about device %s, and the policy about %s", strings.Join(t.names, ", "), strings.Join(devices, ", "))
}

// defaultDevice is taken when no rule names a device.
const defaultDevice = "eth0"

// inside are how the names of devices begin behind which containers, virtual machines and tunnels are.
var inside = []string{
	"lo", "docker", "br-", "veth", "virbr", "vnet", "lxc", "lxd", "cni", "cali", "flannel", "cilium", "weave", "kube",
	"nodelocaldns", "tun", "tap", "wg", "podman", "vxlan", "tailscale", "zt", "dummy",
}

// devices chooses the devices of the policy: those that rules name, when rules tell nothing apart by them.
func (rs *ruleset) chooseDevices(rep *report) ([]string, error) {
	named := rs.outsideDevices()
	switch {
	case len(named) == 0:
		rep.note(place{file: rs.file}, "no rule names a device that faces the outside: the policy is for %s; --device names another", defaultDevice)
		return []string{defaultDevice}, nil
	case len(named) == 1 && !strings.HasSuffix(named[0], "*"):
		return named, nil
	case rs.alike(named):
		return named, nil
	}
	return nil, &InputError{rs.file, 0, "its rules are about several devices: " + strings.Join(named, ", "),
		"say with --device through which packets come in from outside"}
}

// tests calls yield for each test of a device in rules that incoming packets may meet.
func (rs *ruleset) tests(yield func(deviceTest)) {
	for _, t := range rs.tables {
		for _, c := range t.order {
			if c.hook == hookOutput || c.nat {
				continue
			}
			for i := range c.rules {
				for _, a := range c.rules[i].alts {
					for _, d := range a.devices {
						yield(d)
					}
				}
			}
		}
	}
}

// outsideDevices are the devices that rules name, in their order, but those that are inside by their name.
func (rs *ruleset) outsideDevices() (names []string) {
	add := func(name string) {
		isInside := slices.ContainsFunc(inside, func(p string) bool {
			return strings.HasPrefix(name, p) && (p != "lo" || name == "lo")
		})
		if !isInside && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	rs.tests(func(t deviceTest) {
		for _, n := range t.names {
			add(n)
		}
	})
	for _, t := range rs.tables {
		for _, c := range t.order {
			for _, d := range c.devices {
				add(d)
			}
		}
	}
	return names
}

// alike reports whether all rules treat the named devices alike, none of them being a pattern.
func (rs *ruleset) alike(named []string) bool {
	same := !slices.ContainsFunc(named, func(n string) bool { return strings.HasSuffix(n, "*") })
	rs.tests(func(t deviceTest) {
		for _, n := range named[1:] {
			same = same && t.holds(n) == t.holds(named[0])
		}
	})
	for _, t := range rs.tables {
		for _, c := range t.order {
			for _, n := range named {
				same = same && (c.devices == nil || slices.Contains(c.devices, n))
			}
		}
	}
	return same
}
