// SPDX-License-Identifier: Apache-2.0

// This file is the experiment drop: it measures dropped packets per second, by the number of rules, by checks and by the kind of packet.

package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
)

// runDrop measures what policies cost until they have dropped a packet.
func runDrop(ctx context.Context, s *rig.Session) error {
	return rig.With(ctx, s, func(b *rig.Builder) error {
		b.Flow = rig.Flood(rig.RandomHosts(rig.MaxSources).Listed)
		b.Table.Title = "drop: 64-byte UDP packets from random sources, dropped on one core"
		if err := b.Limits(); err != nil {
			return err
		}
		if err := addFloodwall(ctx, b); err != nil {
			return err
		}
		for _, r := range append(dropTC(), dropTools()...) {
			if err := b.AddGuarded(ctx, &rig.Row{Name: r.name, Label: r.label}, r.guard, nil); err != nil {
				return err
			}
		}
		b.Add(&rig.Row{Name: "bpfilter", Label: "bpfilter", Missing: "not packaged in Debian; see github.com/facebook/bpfilter"})
		return b.Measure(ctx)
	})
}

// addFloodwall adds the rows of Floodwall's policies.
func addFloodwall(ctx context.Context, b *rig.Builder) error {
	builtIn := 0 // the rules of every program, whatever the policy
	applied := map[string]*rig.Applied{}
	resting := time.Now() // until then, the protections of unloaded policies drop nothing
	for _, c := range cases(b.Quick) {
		name := "floodwall/" + c.name
		if !b.Wants(name) {
			continue
		}
		b.Steps.Show("applying %s", c.label)
		// The key of a program includes more than the policy. After SYNs, segments cost more, because SYNs leave records of their cookies. With open
		// flows, packets cost more.
		key := fmt.Sprint(c.policy, c.flood, c.open)
		a := applied[key]
		if a == nil {
			var err error
			if a, err = apply(ctx, b, &c); err != nil {
				return fmt.Errorf("floodwall: %s: %w", c.label, err)
			}
			applied[key] = a
			if c.policy == rig.SYNPolicy {
				resting = time.Now().Add(control.Resting)
			}
		}
		label := "floodwall: " + c.label
		if c.rules == 0 && c.flood == "" {
			builtIn = a.Rules
		}
		if left := a.Rules - builtIn; c.rules > 0 && left < c.rules {
			label += fmt.Sprintf(" (merged to %s)", report.CountText(left))
		}
		b.Add(&rig.Row{
			Name: name, Label: label, Subject: rig.Subject{Site: b.XDP, Program: a.Program},
			Flood: c.flood, Flows: c.flows, Goals: rig.OfLeast(c.share), Extra: []lab.Metric{{Value: a.Seconds, Unit: "apply-s"}},
		})
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(resting)):
		return nil
	}
}

// apply loads the program for a case.
func apply(ctx context.Context, b *rig.Builder, c *dropTestCase) (*rig.Applied, error) {
	verdicts := map[string]string{}
	if c.packet != "" {
		verdicts[c.packet] = c.reason
	}
	a, err := b.XDP.Apply(ctx, c.policy, func(ctx context.Context, in control.Instance) error {
		err := rig.Expect(verdicts)(ctx, in)
		if err == nil && c.open > 0 {
			err = openPortFlows(b.XDP.In.Name, c.open)
		}
		if err == nil && c.sampled {
			err = readSamples(ctx, b, in)
		}
		return err
	})
	if err == nil {
		b.Own(a.Program)
	}
	return a, err
}

// openPortFlows opens n flows from one port of this host and answers them. It uses the table that the program continues to use.
func openPortFlows(device string, n int) error {
	return rig.BothSides(device, func(xdp, egress *ebpf.Program) error {
		return rig.OpenFlows(xdp, egress, netip.AddrPortFrom(rig.Server4, openPort), n)
	})
}

// readSamples reads the samples of all packets, as the daemon does, until the builder is closed.
func readSamples(ctx context.Context, b *rig.Builder, in control.Instance) error {
	h, err := in.Handout(ctx, true)
	if err != nil {
		return err
	}
	s, err := h.Open()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var reading sync.WaitGroup
	reading.Go(func() {
		for err := error(nil); err == nil; {
			_, err = s.Read(ctx)
		}
	})
	b.Owned = append(b.Owned, func() error {
		stop()
		reading.Wait()
		return s.Close()
	})
	return nil
}

// dropTC returns the rows of programs at tc: one that drops all, and the policies of Floodwall's rows.
func dropTC() []guardRow {
	all := []guardRow{{"tc-drop", "a tc program that drops", rig.Guard{TC: rig.DropTC}}}
	for _, n := range []int{0, someRules, 10_000} {
		label := "floodwall, tc: " + report.Things(n, "rule that does not match", "rules that do not match") + ", checks: off"
		all = append(all, guardRow{fmt.Sprintf("floodwall/tc/rules=%d/off", n), label, rig.Floodwall("tc", noReplies+"checks: off\n"+rig.RulesPolicy(n))})
	}
	return all
}

// dropTools returns the rows of the tools of the system.
func dropTools() (all []guardRow) {
	for _, r := range []struct {
		name, label, table, chain string
		rules                     int
	}{
		{"iptables/raw", "iptables: raw PREROUTING, the first rule", "raw", "PREROUTING", 0},
		{"iptables/raw/rules=5", "iptables: raw PREROUTING, after 5 rules", "raw", "PREROUTING", 5},
		{"iptables/filter", "iptables: filter INPUT, the first rule", "filter", "INPUT", 0},
	} {
		all = append(all, guardRow{name: r.name, label: r.label, guard: rig.Guard{Iptables: rig.IptablesScript(r.table, r.chain, r.rules)}})
	}
	for _, r := range []struct {
		name, label string
		hook        rig.NftHook
		rules       int
	}{
		{"nft/ingress", "nft: ingress hook, the first rule", rig.NftIngress, 0},
		{"nft/raw", "nft: raw prerouting, the first rule", rig.NftRaw, 0},
		{"nft/ingress/rules=20", "nft: ingress hook, after 20 rules", rig.NftIngress, 20},
		{"nft/ingress/rules=500", "nft: ingress hook, after 500 rules", rig.NftIngress, 500},
	} {
		all = append(all, guardRow{name: r.name, label: r.label, guard: rig.Guard{Nft: r.hook.Script(rig.NftRules(r.rules)+"drop\n", "")}})
	}
	return all
}

// dropTestCase is a policy that drops a flood on XDP.
type dropTestCase struct {
	name, label string
	rules       int
	policy      string     // the policy, without devices
	flood       string     // the name of the flood; "": the table's own flood of UDP over IPv4 from random sources
	flows       []lab.Flow // the packets of another flood
	packet      string     // a packet like those of the flood; "" if a test with one packet says nothing about the flood
	reason      string     // the reason for which that packet is dropped
	sampled     bool       // all packets are sampled, and the samples are read
	open        int        // the number of flows that have begun here; their replies pass
	share       float64    // the goal, as a share of the least program's rate; 0: none
}

// The goals with 20 rules, as shares of the rate of the smallest possible program: by checks and kind of packet, with a limit, and with a protected
// service.
const (
	leastStandard = 0.92
	leastStrict   = 0.90
	leastOther    = 0.90
	leastReplies  = 0.92        // with the open flows of a busy host
	leastMany     = 0.75        // beside those of a gateway
	leastOpenPort = 0.80        // with the open flows of a gateway, when the flood goes to the port of these flows
	leastSampled  = 0.97 * 0.95 // samples take 3% of the rate of 20 rules at most
	leastACK      = 0.80
	leastSYN      = 0.85 // of the rate of a program that answers each SYN and decides nothing
	leastQueries  = 0.60 // with a flood of queries to a game server
	leastUDP      = 0.75 // with a flood to a protected UDP service
)

// Most cases have this number of rules. None of the rules matches, and the default drops the packets.
const (
	someRules      = 20
	defaultDropped = "default"
	noReplies      = "replies: drop\n" // in rows about something else
)

// The numbers of open flows during a flood. The packets of the flood belong to none of the flows. All flows are from one port of this host, each to
// another host.
const (
	openFlows = 1_000   // of a busy host
	manyFlows = 250_000 // of a gateway
	openPort  = 40_000
)

// cases returns the rows. If quick is true, policies with many rules appear only once.
func cases(quick bool) (all []dropTestCase) {
	unlisted := rig.FloodPacket(rig.Addr4(0x01020304))
	add := func(name, label string, rules int, checks string, share float64) {
		all = append(all, dropTestCase{
			name: name, label: label, rules: rules, policy: noReplies + "checks: " + checks + "\n" + rig.RulesPolicy(rules), packet: unlisted,
			reason: defaultDropped, share: share,
		})
	}
	for _, c := range rig.RuleCounts {
		label := report.Things(c.Rules, "rule that does not match", "rules that do not match")
		add(fmt.Sprintf("rules=%d/off", c.Rules), label+", checks: off", c.Rules, "off", c.Unlisted)
		if quick && c.Rules > someRules {
			continue
		}
		add(fmt.Sprintf("rules=%d", c.Rules), label, c.Rules, "standard", map[int]float64{someRules: leastStandard}[c.Rules])
	}
	add(fmt.Sprintf("rules=%d/strict", someRules), fmt.Sprintf("%d rules, checks: strict", someRules), someRules, "strict", leastStrict)
	for _, c := range rig.RuleCounts {
		if c.Listed > 0 {
			all = append(all, listed(c.Rules, c.Listed))
		}
	}
	return append(all, otherKinds()...)
}

// listed returns a case with a flood from sources that the rules name. The flood goes to other ports than the rules.
func listed(rules int, share float64) dropTestCase {
	hosts := rig.RuleHosts(rules)
	return dropTestCase{
		name: fmt.Sprintf("rules=%d/off/listed", rules), label: fmt.Sprintf("%s rules, which name the source, checks: off", report.CountText(rules)),
		rules: rules, policy: noReplies + "checks: off\n" + rig.RulesPolicy(rules), flood: fmt.Sprintf("listed=%d", rules),
		flows: []lab.Flow{rig.Flood(hosts)}, packet: rig.FloodPacket(hosts[0]), reason: defaultDropped, share: share,
	}
}

// otherKinds returns cases with floods of other kinds of packets.
func otherKinds() []dropTestCase {
	some := "checks: off\n" + rig.RulesPolicy(someRules)
	rules := noReplies + some
	replies := func(name string, open int, share float64) dropTestCase {
		return dropTestCase{
			name: name, label: fmt.Sprintf("20 rules, replies pass of %s open flows, checks: off", report.CountText(open)), rules: someRules,
			policy: some, packet: rig.FloodPacket(rig.Addr4(0x01020304)), reason: defaultDropped, open: open, share: share,
		}
	}
	udp := func(from string, to netip.Addr) lab.Flow {
		return rig.UDPFlood(lab.MustAddrs(from), to, rig.SinkPort)
	}
	tagged := udp("16.0.0.0/4", rig.Server4)
	tagged.VLAN = []uint16{10}
	acks := rig.TCPFlood(lab.MustAddrs("128.0.0.0/2"), rig.Server4, 80, lab.ACK, nil)
	syns := rig.TCPFlood(lab.MustAddrs("128.0.0.0/2"), rig.Server4, 80, lab.SYN, lab.SYNOptions)
	return append(append(udpFloods(), gameQueries()), []dropTestCase{
		replies("rules=20/off/replies", openFlows, leastReplies), replies("rules=20/off/replies/many", manyFlows, leastMany),
		{
			name: "rules=20/off/replies/open", label: "the same, the flood to the port that they are of", rules: someRules, policy: some, flood: "open-port",
			flows:  []lab.Flow{rig.TCPFlood(lab.Listed(rig.RandomHosts(rig.MaxSources).Listed), rig.Server4, openPort, lab.ACK, nil)},
			packet: fmt.Sprintf("tcp 1.2.3.4:4000 > %s:%d . seq=1 ack=1", rig.Server4, openPort), reason: defaultDropped, open: manyFlows, share: leastOpenPort,
		},
		{
			name: "rules=20/off/samples", label: "20 rules, one in 1,000 packets is a sample for the daemon, checks: off", rules: someRules,
			policy: "daemon: {sample: 1/1000}\n" + rules, packet: rig.FloodPacket(rig.Addr4(0x01020304)), reason: defaultDropped,
			sampled: true, share: leastSampled,
		},
		{
			name: "rules=20/off/ipv6", label: "20 rules, IPv6, checks: off", rules: someRules, policy: rules, flood: "ipv6",
			flows: []lab.Flow{udp("2400::/16", rig.Server6)}, packet: "udp [2400::9]:4000 > [fd00::2]:53", reason: defaultDropped, share: leastOther,
		},
		{
			name: "rules=20/off/vlan", label: "20 rules, a VLAN tag, checks: off", rules: someRules, policy: rules, flood: "vlan",
			flows: []lab.Flow{tagged}, packet: "udp 16.2.3.4:4000 > 10.0.0.2:53 vlan=10", reason: defaultDropped, share: leastOther,
		},
		closedPort("closed", "a closed UDP port of a web server", ""),
		closedPort("closed/connections", "the same, beside a limit of connections to tcp/22, which waits for conntrack", rig.ConnectionLimit),
		{
			name: "limit", label: "over a limit of 1000/s per /16, 64 of them, checks: off",
			policy: "default: drop\n" + noReplies + "checks: off\nrules: [{name: limit, proto: udp, over: {rate: 1000/s, per: from/16}, then: drop}]\n", flood: "limit",
			flows: []lab.Flow{udp("64.0.0.0/10", rig.Server4)}, packet: rig.FloodPacket(rig.Addr4(0x40020304)), reason: defaultDropped, share: rig.LeastLimit,
		},
		{
			name: "ack", label: "ACKs of no connection to a protected service", flood: "ack", policy: rig.SYNPolicy,
			flows: []lab.Flow{acks}, share: leastACK,
		},
		{
			name: "syn", label: "SYN answered, of an XDP_TX that writes the same frame", flood: "syn", policy: rig.SYNPolicy,
			flows: []lab.Flow{syns}, share: leastSYN,
		},
	}...)
}

// closedPort returns a case with a flood to a closed port of a web server. The policy has the services of the web server, and the given rules.
func closedPort(name, label, rules string) dropTestCase {
	return dropTestCase{
		name: name, label: label, policy: rig.WebServer + rules, flood: "closed",
		flows:  []lab.Flow{rig.UDPFlood(lab.MustAddrs(floodSources), rig.Server4, rig.SinkPort)},
		packet: rig.FloodPacket(rig.Addr4(0x01020304)), reason: defaultDropped,
	}
}

// udpFloods returns cases with floods to protected UDP services. The datagrams start no connection. If the protocol has datagrams that start one, a
// second flood has these.
func udpFloods() (all []dropTestCase) {
	add := func(u rig.UDPService, what, label, datagram string) {
		all = append(all, dropTestCase{
			name: "udp=" + u.Protocol + what, label: "a flood at a UDP service, protect: " + u.Protocol + label, flood: "udp-" + u.Protocol + what,
			policy: noReplies + fmt.Sprintf("default: drop\nservices: [{name: game, port: udp/%d, udp: {protect: %s}}]\n", udpPort, u.Protocol),
			flows:  []lab.Flow{udpFlow(datagram)}, share: leastUDP,
		})
	}
	for _, u := range rig.UDPServices {
		add(u, "", "", u.Lacks)
		if u.Begins != u.Lacks {
			add(u, "/begins", ", of first packets", u.Begins)
		}
	}
	add(rig.RakNetServer, "", "", rig.RakNetServer.Lacks)
	return all
}

// gameQueries returns a case with a flood of queries to a game server, which are answered with challenges. The answers have the length of the
// queries. This is needed because the source sends each frame again when it returns, and would not restore the length of a shorter frame.
func gameQueries() dropTestCase {
	return dropTestCase{
		name: "udp=a2s/player", label: "queries at a game server for PLAYER, challenged, of an XDP_TX that changes nothing", flood: "a2s-player",
		policy: noReplies + fmt.Sprintf("default: drop\nservices: [{name: game, port: udp/%d, udp: {protect: a2s}}]\n", udpPort),
		flows:  []lab.Flow{udpFlow(rig.QueryPlayer)}, share: leastQueries,
	}
}

// udpFlow returns a flood of a datagram. The parameter has the notation of package packet.
func udpFlow(datagram string) lab.Flow {
	f := rig.UDPFlood(lab.MustAddrs(floodSources), rig.Server4, udpPort)
	f.Payload = rig.MustPayload(datagram)
	return f
}
