package iptables

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

func (b *builder) hasUntracked() bool { return !b.pl.Program.Untracked.None() }

// untracked exempts packets from connection tracking, in chains of their own: CT does not end a packet's way through a
// chain, and what the chain of rules lets by returns from it.
//
// A service is exempted for those who come in by the devices: their packets to its ports, and its answers, from this
// host or, when it is forwarded, from another device. What comes in for this host with such a port as source is none of
// them: it may belong to a connection that this host began. What goes from another device to a third one is taken for an
// answer, as it is not routed yet: connections between other devices to a server with that port are tracked in one
// direction. A service that this host serves has no such answer: NAT may send connections of another port on to that port of
// a container. What is named otherwise is exempted by itself and in the other direction, whatever device it passes.
func (f *familyBuilder) untracked() {
	if !f.hasUntracked() {
		return
	}
	if len(f.tables) == 0 {
		f.tables = append(f.tables, &table{name: "raw", names: nameSet{}})
	}
	t := f.tables[0]
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

func direction(option, device string) string {
	if device == "" {
		return ""
	}
	return option + device + " "
}

// notrack adds lines for the packets of which a port is that of a service, and for which its last test holds, if it has lines here.
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

// untrackedFlows adds the lines for what is exempted in both directions.
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
	f.passing = true // without exceptions
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
