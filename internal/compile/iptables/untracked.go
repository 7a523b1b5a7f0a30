// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

func (b *builder) hasUntracked() bool { return !b.pl.Program.Untracked.None() }

// untracked exempts packets from connection tracking, in chains of their own. They cannot stand in the chain of rules,
// because CT does not end a chain and packets that pass return from the chain of rules.
//
// A service is exempt for clients that arrive by the devices: their packets to its ports, and its answers, which come from this host or, if the
// service is forwarded, from another device. A packet to this host with such a source port is not an answer: it may belong to a connection that this
// host has opened. A packet from another device to a third host counts as an answer, because it is not routed yet. So connections between other
// devices to a server with that port are tracked in one direction only. A service of this host itself has no such forwarded answers: NAT may redirect
// connections of another port to that port of a container. Other exempt traffic is exempt in both directions, on all devices.
func (f *familyBuilder) untracked() {
	if !f.hasUntracked() {
		return
	}
	t := f.rawTable()
	in := &chain{name: f.mainChain("UNTRACK-IN")}
	out := &chain{name: f.mainChain("UNTRACK-OUT")}
	t.chains = append(t.chains, in, out)
	if f.pl.Program.Untracked.Loopback {
		in.add("-i lo -m comment --comment loopback -j CT --notrack")
		out.add("-o lo -m comment --comment loopback -j CT --notrack")
	}
	f.untrackedFlows(in)
	f.untrackedFlows(out)
	devices := f.o.Devices
	if len(devices) == 0 {
		devices = []string{""}
	}
	for _, d := range devices {
		f.notrack(in, direction("-i ", d), packet.DPort, func(s ir.UntrackedService) (last lineTests, ok bool) {
			if s.Here {
				last = localAddr(1, false)
			}
			return last, true
		})
	}
	for _, d := range f.o.Devices {
		in.add("-i %s -j RETURN", d)
	}
	f.notrack(in, "", packet.SPort, func(s ir.UntrackedService) (lineTests, bool) { return localAddr(1, true), !s.Here })
	for _, d := range devices {
		f.notrack(out, direction("-o ", d), packet.SPort, func(ir.UntrackedService) (lineTests, bool) { return lineTests{}, true })
	}
}

// rawTable returns the table raw, which may have no chain of rules.
func (f *familyBuilder) rawTable() *table {
	if len(f.tables) == 0 {
		f.tables = append(f.tables, &table{name: "raw", names: nameSet{}})
	}
	return f.tables[0]
}

func direction(option, device string) string {
	if device == "" {
		return ""
	}
	return option + device + " "
}

// notrack adds lines for packets whose source or destination port is that of an exempt service. lastOf returns an additional test for a service. It
// returns false if the service has no lines here.
func (f *familyBuilder) notrack(c *chain, where string, port packet.Field, lastOf func(ir.UntrackedService) (lineTests, bool)) {
	for _, s := range f.pl.Program.Untracked.Services {
		last, ok := lastOf(s)
		if !ok {
			continue
		}
		for _, kind := range []match.Kind{match.TCP, match.UDP} {
			tests, possible := match.KindTests(&ir.Rule{Match: []ir.Match{{Field: port, Values: s.Ports}}}, kind)
			if !possible {
				continue
			}
			for _, a := range f.header(kind, tests).any {
				c.add("%s%s-m comment --comment %s -j CT --notrack", where, a.and(last), commentText("untracked "+shortName(s.Name, maxComment)))
			}
		}
	}
}

// untrackedFlows adds the lines for traffic that is exempt in both directions.
func (f *familyBuilder) untrackedFlows(c *chain) {
	u := &f.pl.Program.Untracked
	add := func(tests, what string) {
		c.add("%s-m comment --comment %s -j CT --notrack", tests, commentText("untracked "+shortName(what, maxComment)))
	}
	if u.All {
		add("", "all")
		return
	}
	if u.Multicast {
		add(map[uint32]string{packet.FamilyIPv4: "-d 224.0.0.0/4 ", packet.FamilyIPv6: "-d ff00::/8 "}[f.family], "multicast")
	}
	if u.Broadcast && f.family == packet.FamilyIPv4 {
		add("-m addrtype --dst-type BROADCAST ", "broadcast")
	}
	f.passing = true // so that conditions have no exceptions
	for i := range u.Flows {
		back := u.Flows[i].Reversed()
		var written []string
		for _, r := range []*ir.Rule{&u.Flows[i], &back} {
			for _, way := range f.conditions(r) {
				for _, tests := range way.any {
					if text := tests.String(); !slices.Contains(written, text) {
						written = append(written, text)
						add(text, u.Flows[i].Name)
					}
				}
				if len(way.not) > 0 {
					f.err = &Error{fmt.Sprintf("untracked: iptables cannot test %s in few lines", u.Flows[i].Name), "name fewer protocols, or use --target nftables"}
				}
			}
		}
	}
}
