package main

// The ports of trials. The thousands tell which policy passes them.
const (
	onlyOld = 1000
	onlyNew = 2000
	both    = 3000
	neither = 4000
)

// layout is where the two policies of a trial run.
type layout struct {
	name     string
	old, new []string // the arguments of apply, without the policy
	stateful bool     // the policies have rules that need conntrack
	tagged   *tagged  // nil where nothing is asked about VLAN tags
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

// on is a layout where both run on the same target, with these flags.
func on(name string, stateful bool, target ...string) layout {
	flags := append([]string{"--target"}, target...)
	return layout{name, flags, flags, stateful, nil}
}

// Policies that differ in what they pass, and in where they drop what neither passes: ports ending in 1 are dropped
// where conntrack is known, 4002 there by the new one only, 4003 by the old one only.
const (
	oldPlain = `
default: pass
rules:
  - {name: old, proto: udp, port: [2000, 4000], then: drop}
`
	newPlain = `
default: drop
rules:
  - {name: new, proto: udp, port: [2000, 3000], then: pass}
`
	oldStateful = `
default: pass
rules:
  - {name: old, proto: udp, port: [2000, 4000, 4002], then: drop}
  - {name: old-state, proto: udp, port: [2001, 4001, 4003], state: [new, established], then: drop}
`
	newStateful = `
default: pass
rules:
  - {name: new, proto: udp, port: [1000, 4000, 4003], then: drop}
  - {name: new-state, proto: udp, port: [1001, 4001, 4002], state: [new, established], then: drop}
`
)

// policies are the texts of the old and the new one.
func (l layout) policies() (old, new string) {
	switch {
	case l.tagged != nil:
		return taggedPolicy(onlyNew), taggedPolicy(onlyOld)
	case l.stateful:
		return oldStateful, newStateful
	}
	return oldPlain, newPlain
}

// ports are those that the layout's policies know.
func (l layout) ports() []int {
	if l.stateful {
		return []int{1000, 1001, 2000, 2001, 3000, 3001, 4000, 4001, 4002, 4003}
	}
	return []int{1000, 2000, 3000, 4000}
}

// probes are packets to these ports, of both families, for which is holds.
func (l layout) probes(is func(kind int) bool) (list []probe) {
	for _, port := range l.ports() {
		if is(port / 1000 * 1000) {
			list = append(list, probe{v6: false, port: port}, probe{v6: true, port: port})
		}
	}
	return list
}

func always(int) bool { return true }
