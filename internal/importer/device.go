// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/importer/saved"
)

// asideOf returns why a rule with such a device test does not belong in the policy.
func asideOf(t saved.DeviceTest, devices []string) string {
	switch {
	case t.Not:
		return fmt.Sprintf("is not about packets that come in through %s", strings.Join(devices, ", "))
	case len(t.Names) == 1 && t.Names[0] == "lo":
		return "implied: the policy filters no packets of the host with itself"
	}
	return fmt.Sprintf("is about device %s, and the policy about %s", strings.Join(t.Names, ", "), strings.Join(devices, ", "))
}

// defaultDevice is used when no rule names a device.
const defaultDevice = "eth0"

// inside are the prefixes of the names of devices that lead to containers, virtual machines and tunnels.
var inside = []string{
	"lo", "docker", "br-", "veth", "virbr", "vnet", "lxc", "lxd", "cni", "cali", "flannel", "cilium", "weave", "kube",
	"nodelocaldns", "tun", "tap", "wg", "podman", "vxlan", "tailscale", "zt", "dummy",
}

// chooseDevices chooses the devices of the policy: the devices that rules name, if the rules treat all of them alike.
func chooseDevices(rs *saved.Ruleset, rep *saved.Report) ([]string, error) {
	named := outsideDevices(rs)
	switch {
	case len(named) == 0:
		rep.Note(saved.Place{File: rs.File}, "no rule names a device that faces the outside: the policy is for %s; --device names another", defaultDevice)
		return []string{defaultDevice}, nil
	case len(named) == 1 && !strings.HasSuffix(named[0], "*"):
		return named, nil
	case alike(rs, named):
		return named, nil
	}
	return nil, &saved.InputError{File: rs.File, Line: 0, Msg: "its rules are about several devices: " + strings.Join(named, ", "),
		Remedy: "say with --device through which packets come in from outside"}
}

// deviceTests calls yield for each test of a device in rules that incoming packets may reach.
func deviceTests(rs *saved.Ruleset, yield func(saved.DeviceTest)) {
	for _, t := range rs.Tables {
		for _, c := range t.Order {
			if c.Hook == saved.HookOutput || c.NAT {
				continue
			}
			for i := range c.Rules {
				for _, a := range c.Rules[i].Alts {
					for _, d := range a.Devices {
						yield(d)
					}
				}
			}
		}
	}
}

// outsideDevices returns the devices that rules name, in order, except those that are internal according to their name.
func outsideDevices(rs *saved.Ruleset) (names []string) {
	add := func(name string) {
		isInside := slices.ContainsFunc(inside, func(p string) bool {
			return strings.HasPrefix(name, p) && (p != "lo" || name == "lo")
		})
		if !isInside && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	deviceTests(rs, func(t saved.DeviceTest) {
		for _, n := range t.Names {
			add(n)
		}
	})
	for _, t := range rs.Tables {
		for _, c := range t.Order {
			for _, d := range c.Devices {
				add(d)
			}
		}
	}
	return names
}

// alike reports whether all rules treat the named devices in the same way, and no name is a pattern.
func alike(rs *saved.Ruleset, named []string) bool {
	same := !slices.ContainsFunc(named, func(n string) bool { return strings.HasSuffix(n, "*") })
	deviceTests(rs, func(t saved.DeviceTest) {
		for _, n := range named[1:] {
			same = same && t.Holds(n) == t.Holds(named[0])
		}
	})
	for _, t := range rs.Tables {
		for _, c := range t.Order {
			for _, n := range named {
				same = same && (c.Devices == nil || slices.Contains(c.Devices, n))
			}
		}
	}
	return same
}
