// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"net/netip"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

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
