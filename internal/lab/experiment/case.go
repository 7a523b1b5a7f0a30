package experiment

import (
	"fmt"
	"net/netip"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// dropTestCase is a policy that drops a flood on XDP.
type dropTestCase struct {
	name, label string
	rules       int
	policy      string     // without its devices
	flood       string     // "": the table's own, of UDP over IPv4 from random sources
	flows       []lab.Flow // of another flood
	packet      string     // one like those of the flood, "" where a question about one says nothing of a flood,
	reason      string     // and why it is dropped
	sampled     bool       // samples of all packets are taken, and read
	open        int        // so many flows have begun here, whose replies pass
	share       float64    // of the least program's rate to reach; 0: none is asked for
}

// The shares of the least program's rate to reach with 20 rules, by checks and kind of packet, and with a limit and a protected
// service.
const (
	leastStandard = 0.92
	leastStrict   = 0.90
	leastOther    = 0.90
	leastReplies  = 0.92        // beside the flows of a busy host,
	leastMany     = 0.75        // of a gateway,
	leastOpenPort = 0.80        // and beside those, where the flood has the port that they are of
	leastSampled  = 0.97 * 0.95 // samples take 3% of the rate of 20 rules at most
	leastACK      = 0.80
	leastSYN      = 0.85 // of a program that answers each SYN and decides nothing
	leastQueries  = 0.60 // of a flood of queries at a game server
	leastUDP      = 0.75 // of a flood at a protected UDP service
)

// What most cases have: so many rules, and packets that none of them matches.
const (
	someRules      = 20
	defaultDropped = "default"
	noReplies      = "replies: drop\n" // of rows that are about something else
)

// Flows that are open while packets of none of them are dropped: of one port here, to as many others.
const (
	openFlows = 1_000   // of a busy host,
	manyFlows = 250_000 // and of a gateway
	openPort  = 40_000
)

// cases are the rows. With quick, policies of many rules are there once.
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

// listed is a flood from sources that the rules name, for other ports.
func listed(rules int, share float64) dropTestCase {
	hosts := rig.RuleHosts(rules)
	return dropTestCase{
		name: fmt.Sprintf("rules=%d/off/listed", rules), label: fmt.Sprintf("%s rules, which name the source, checks: off", report.CountText(rules)),
		rules: rules, policy: noReplies + "checks: off\n" + rig.RulesPolicy(rules), flood: fmt.Sprintf("listed=%d", rules),
		flows: []lab.Flow{rig.Flood(hosts)}, packet: rig.FloodPacket(hosts[0]), reason: defaultDropped, share: share,
	}
}

// otherKinds are floods of other packets.
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

// closedPort is a flood at a closed port beside the services of a web server, and other rules.
func closedPort(name, label, rules string) dropTestCase {
	return dropTestCase{
		name: name, label: label, policy: rig.WebServer + rules, flood: "closed",
		flows:  []lab.Flow{rig.UDPFlood(lab.MustAddrs(floodSources), rig.Server4, rig.SinkPort)},
		packet: rig.FloodPacket(rig.Addr4(0x01020304)), reason: defaultDropped,
	}
}

// udpFloods are floods at protected UDP services, of datagrams that are no beginning, and where there are others, of those that are.
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

// gameQueries is a flood of queries at a game server, which are answered with challenges as long as they are: the source sends a frame again that
// comes back, and would not give one that has become shorter its length back.
func gameQueries() dropTestCase {
	return dropTestCase{
		name: "udp=a2s/player", label: "queries at a game server for PLAYER, challenged, of an XDP_TX that changes nothing", flood: "a2s-player",
		policy: noReplies + fmt.Sprintf("default: drop\nservices: [{name: game, port: udp/%d, udp: {protect: a2s}}]\n", udpPort),
		flows:  []lab.Flow{udpFlow(rig.QueryPlayer)}, share: leastQueries,
	}
}

// udpFlow is a flood of a datagram in the notation of package packet.
func udpFlow(datagram string) lab.Flow {
	f := rig.UDPFlood(lab.MustAddrs(floodSources), rig.Server4, udpPort)
	f.Payload = rig.MustPayload(datagram)
	return f
}
