// SPDX-License-Identifier: Apache-2.0

package main

// The ports of trials. The thousands of a port tell which policy passes packets to it.
const (
	onlyOld = 1000
	onlyNew = 2000
	both    = 3000
	neither = 4000
)

// layout describes the targets on which the two policies of a trial run.
type layout struct {
	name     string
	old, new []string // the arguments of apply, without the policy
	stateful bool     // the policies have rules that need conntrack
	tagged   *tagged  // nil: VLAN tags are not tested
}

var (
	xdpAlone  = on("xdp", false, "xdp")
	generic   = on("xdp generic", false, "xdp", "--mode", "generic")
	companion = on("xdp with nftables", true, "xdp")
	nftables  = on("nftables", true, "nftables")
	iptables  = on("iptables", true, "iptables")

	toNetfilter = layout{"xdp to iptables", companion.old, iptables.new, true, nil}
	toXDP       = layout{"nftables to xdp", nftables.old, companion.new, true, nil}
)

// on returns a layout in which both policies run on the same target. The parameter target has the target and further flags.
func on(name string, stateful bool, target ...string) layout {
	flags := append([]string{"--target"}, target...)
	return layout{name, flags, flags, stateful, nil}
}

// The two policies pass different packets. They drop the packets that neither passes at different stages. Packets to ports that end in 1 are dropped
// after conntrack. Only the new policy drops port 4002 there, and only the old policy drops port 4003 there.
const (
	oldPlain = `
default: pass
checks: off
rules:
  - {name: old, proto: udp, port: [2000, 4000], then: drop}
`
	newPlain = `
default: drop
checks: off
rules:
  - {name: new, proto: udp, port: [2000, 3000], then: pass}
`
	oldStateful = `
default: pass
checks: off
rules:
  - {name: old, proto: udp, port: [2000, 4000, 4002], then: drop}
  - {name: old-state, proto: udp, port: [2001, 4001, 4003], state: [new, established], then: drop}
`
	newStateful = `
default: pass
checks: off
rules:
  - {name: new, proto: udp, port: [1000, 4000, 4003], then: drop}
  - {name: new-state, proto: udp, port: [1001, 4001, 4002], state: [new, established], then: drop}
`
)

// policies returns the texts of the old and the new policy.
func (l layout) policies() (old, new string) {
	switch {
	case l.tagged != nil:
		return taggedPolicy(onlyNew), taggedPolicy(onlyOld)
	case l.stateful:
		return oldStateful, newStateful
	}
	return oldPlain, newPlain
}

// ports returns the ports in the layout's policies.
func (l layout) ports() []int {
	if l.stateful {
		return []int{1000, 1001, 2000, 2001, 3000, 3001, 4000, 4001, 4002, 4003}
	}
	return []int{1000, 2000, 3000, 4000}
}

// probes returns packets to the ports for whose kind the function is returns true, in both address families.
func (l layout) probes(is func(kind int) bool) (list []probe) {
	for _, port := range l.ports() {
		if is(port / 1000 * 1000) {
			list = append(list, probe{v6: false, port: port}, probe{v6: true, port: port})
		}
	}
	return list
}

func always(int) bool { return true }
