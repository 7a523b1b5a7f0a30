// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// checkTests has the tests of a check in a table.
type checkTests struct {
	lines  []string // a packet that matches any of these lines fails the check; none if nft cannot make the check
	within []string // lines of a chain for packets that match the last of lines; nil: that line alone decides
	header bool     // the lines read the L4 header
	left   string   // describes the part of the check that is missing, and the kernel's own handling of such packets; "" if nothing is missing
}

// isSYN is the text with which tests of SYNs begin.
const isSYN = "tcp flags & (syn|ack) == syn "

// checkTable has the checks of internal/model/packet as tests of nft. nft reads only the first header of each kind, cannot calculate, and cannot
// compare two fields. A test of nft fails if the data that it reads is not in the packet.
var checkTable = [packet.NumChecks]checkTests{
	packet.Truncated: {
		lines: []string{"ip6 nexthdr 0 ip6 length 0"}, // the kernel then uses the length of the frame as the length of the packet
		left: "at ingress the kernel drops what ends before its IP header says; an L4 header that is cut " +
			"short matches no rule on ports, flags or types, and TCP, UDP and ICMP drop it",
	},
	packet.IPHeader: {left: "the kernel drops such packets at ingress, uncounted, before any rule"},
	packet.VLANDepth: {left: "nft cannot count tags: where checks or rules run at ingress, which sees IP behind one tag at most, " +
		"a second tag fails it; rules elsewhere see the packet without its tags"},
	packet.SourceMAC: {
		lines: []string{"meta iiftype ether @ll,48,8 & 0x1 == 0x1"}, // only the byte of the address with the group bit is read
		left:  "frames that are not IP are not seen; ARP does not care about their source",
	},
	packet.TTLZero: {lines: []string{"ip ttl 0", "ip6 hoplimit 0"}},
	packet.SourceRoute: {
		lines:  []string{"rt type 0", "ip hdrlength != 5"}, // few packets have options, so the header length excludes the expensive searches for options
		within: []string{"ip option lsrr exists", "ip option ssrr exists"},
		left: "options that the kernel cannot read, and a routing header behind another, are not found; unless " +
			"accept_source_route is set, the kernel follows neither",
	},
	packet.IPOptions: {
		lines: []string{"ip hdrlength > 5 @nh,160,8 != { 0, 1, 131, 137, 148 }", "ip option rr exists"},
		left:  "of the options behind the first one only record-route is found, and no wrong length",
	},
	packet.TinyFragment: {
		lines: []string{
			"meta l4proto tcp frag frag-off 1-2",
			"ip protocol tcp ip frag-off & 0x3fff != 0",
		},
		within: append([]string{"ip frag-off & 0x1fff 1-2"}, shortTCP()...),
		left: "a first fragment of IPv6 that ends within its L4 header, and one of IPv4 that ends within the options of TCP, are " +
			"not found; the kernel drops the former when it puts the packet together",
	},
	packet.FragmentOverflow: {left: "nft cannot add offset and length; the kernel drops such fragments when it puts them together"},
	packet.AtomicFragment: {
		lines: []string{"frag frag-off 0 frag more-fragments 0"},
		left:  "a second fragment header is not found",
	},
	packet.ExtHeaders: {left: "nft cannot count headers; the kernel reads any number"},
	packet.ExtOrder: {
		lines: []string{"ip6 nexthdr != 0 exthdr hbh exists"},
		left:  "a second hop-by-hop or fragment header is not found; the kernel refuses the former",
	},
	packet.Land: {left: "nft cannot compare two fields; IPv4 drops packets that come in with an address of this host's own as source"},
	packet.SourceAddress: {lines: []string{ // the test of the bits that these IPv4 addresses have in common saves most packets the expensive lookup
		"ip saddr & 96.0.0.0 == 96.0.0.0 ip saddr { 127.0.0.0/8, 224.0.0.0/4, 255.255.255.255 }", "ip6 saddr { ::1, ff00::/8 }",
	}},
	packet.BogonSource: {lines: bogonTests},
	packet.OwnSource:   {lines: []string{"fib saddr type local"}},
	packet.NDHopLimit:  {header: true, lines: []string{"icmpv6 type 133-137 ip6 hoplimit != 255"}},
	packet.TCPHeader: {
		header: true, lines: []string{"tcp doff < 5"},
		left: "nft cannot compare the header's length with the packet's; TCP drops a header that goes past the packet",
	},
	packet.TCPFlags: {header: true, lines: []string{"tcp flags & (fin|syn|rst|ack|urg) != { syn, syn|urg, syn|ack, rst, rst|ack, " +
		"fin|ack, fin|ack|urg, ack, ack|urg }"}},
	packet.PortZero:      {header: true, lines: []string{"tcp dport 0", "udp dport 0", "tcp sport 0"}},
	packet.UDPSourceZero: {header: true, lines: []string{"udp sport 0"}},
	packet.TCPOptions:    {left: "nft cannot follow options; TCP stops reading them at one of a wrong length"},
	packet.SYNData:       {left: "nft cannot compare the header's length with the packet's; TCP keeps the data for Fast Open only"},
	packet.SYNLowPort:    {header: true, lines: []string{isSYN + "tcp sport < 1024"}},
	packet.SYNNoMSS: {
		header: true, lines: []string{isSYN + "tcp doff >= 5 tcp option maxseg missing"},
		left: "an MSS option behind the one that ends the options counts, and a SYN whose header goes past the packet or " +
			"whose option lengths are wrong may be dropped here as well",
	},
	packet.SYNWindowZero: {header: true, lines: []string{isSYN + "tcp window 0"}},
	packet.ACKZero:       {header: true, lines: []string{"tcp flags & ack == ack tcp ackseq 0"}},
	packet.UDPLength: {
		header: true, lines: []string{"udp length < 8"},
		left: "nft cannot compare the length with the packet's; UDP drops what is shorter than its header says",
	},
	packet.UDP6Checksum:    {header: true, lines: []string{"meta nfproto ipv6 udp checksum 0"}},
	packet.ReflectorSource: {header: true, lines: []string{"udp sport { " + reflectorPorts() + " }"}},
	packet.ICMPType:        {header: true, lines: []string{"icmp type { 4, 5, 13-18 }"}},
	packet.ICMPLarge:       {header: true, lines: []string{"icmp type echo-request ip length > 1024", "icmpv6 type echo-request ip6 length > 984"}},
	packet.IPProtocol:      {lines: []string{"meta l4proto { 148-252, 255 }"}},
	packet.IPChecksum:      {left: "nft cannot add up a checksum; the kernel drops such packets when IP reads them"},
}

// shortTCP returns tests for first fragments with less than 20 bytes after the IPv4 header. Each header length needs a test of its own.
func shortTCP() (lines []string) {
	for words := 5; words <= 15; words++ {
		lines = append(lines, fmt.Sprintf("ip hdrlength %d ip length < %d ip frag-off & 0x1fff == 0", words, words*4+20))
	}
	return lines
}

func reflectorPorts() string {
	var ports []string
	for _, p := range packet.ReflectorPorts {
		ports = append(ports, fmt.Sprint(p))
	}
	return strings.Join(ports, ", ")
}

// bogonTests are the tests of the check bogon-source. They exclude packets of senders that have no address yet, packets with a link-local source, and
// NAT64, which is within ::/8.
var bogonTests = []string{
	"ip saddr { 0.0.0.1-0.255.255.255, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12,\n\t\t\t" +
		"192.0.0.0/24, 192.0.2.0/24, 192.168.0.0/16, 198.18.0.0/15, 198.51.100.0/24, 203.0.113.0/24, 224.0.0.0-255.255.255.255 }",
	"ip saddr 0.0.0.0 meta l4proto != udp",
	"ip6 saddr { ::1-64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff, 64:ff9b::1:0:0-ff:ffff:ffff:ffff:ffff:ffff:ffff:ffff,\n\t\t\t" +
		"100::/64, 2001:db8::/32, 3fff::/20, fc00::/7, fec0::/10, ff00::/8 }",
	"ip6 saddr { ::, fe80::/10 } meta l4proto != { udp, icmpv6 }",
}

// stageChecks are the checks that a stage makes: checks that drop packets, and checks that only count.
type stageChecks struct{ dropping, observed []packet.Check }

func (c stageChecks) all() []packet.Check { return slices.Concat(c.dropping, c.observed) }

func readsL4(c packet.Check) bool { return checkTable[c].header }

// checks returns the enabled checks that a stage makes. At the first stage it also records the checks that are missing or incomplete.
func (n *generator) checks(s plan.Stage) (at stageChecks) {
	if n.plan.Target != plan.TargetNftables {
		return at
	}
	for c := range packet.NumChecks {
		check := checkTable[c]
		drops, counts := n.plan.Program.Checks.Has(c), n.plan.Program.Observed.Has(c)
		if check.left != "" && s == plan.StageIngress && (drops || counts) {
			n.out.Left = append(n.out.Left, plan.LeftCheck{Check: c, Why: check.left})
		}
		switch {
		case check.lines == nil || n.plan.CheckStage(c) != s:
		case drops:
			at.dropping = append(at.dropping, c)
		case counts:
			at.observed = append(at.observed, c)
		}
	}
	return at
}

// checkLines returns the lines of checks. Each line counts, and ends with a verdict.
func (n *generator) checkLines(list []packet.Check, verdict string) (lines []guardLine) {
	for _, c := range list {
		if n.out.Checks[c] == "" {
			n.out.Checks[c] = n.counter("check", c.String())
		}
		doc, _, _ := strings.Cut(c.Info().Doc, " (")
		remark, count := fmt.Sprintf("check %s: %s", c, doc), countText(n.out.Checks[c])
		check := checkTable[c]
		for i, text := range check.lines {
			line := guardLine{remark, text, []string{count, verdict}}
			if check.within != nil && i == len(check.lines)-1 {
				line.words = []string{"jump", n.called("check-"+c.String(), func() {
					for _, within := range check.within {
						n.line(within, count, verdict)
					}
				})}
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// observe writes a call of a chain that makes checks that only count. The chain counts the first check in list that a packet fails.
func (n *generator) observe(name string, list []packet.Check) {
	if len(list) > 0 {
		n.line("jump", n.called(name+"-observed", func() { n.plainGuards(n.checkLines(list, "return"), "") }))
	}
}
