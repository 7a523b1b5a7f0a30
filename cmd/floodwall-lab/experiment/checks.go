package experiment

import "strings"

// The standard checks for each tool, as far as the tool supports them. There is a line for each check, in the order of Floodwall's checks. In this
// experiment, Floodwall's policies have these checks in addition to the limit.
var (
	nftChecks = dropEach(`ip6 nexthdr 0 ip6 length 0
ether saddr & 01:00:00:00:00:00 != 00:00:00:00:00:00
ip ttl 0
ip6 hoplimit 0
ip option lsrr exists
ip option ssrr exists
rt type 0
meta l4proto tcp frag frag-off 1-2
ip protocol tcp ip frag-off & 0x1fff 1-2
ip protocol tcp ip frag-off & 0x3fff == 0x2000 ip length < 40
ip6 nexthdr != 0 exthdr hbh exists
ip saddr { 127.0.0.0/8, 224.0.0.0/4, 255.255.255.255 }
ip6 saddr { ::1, ff00::/8 }
icmpv6 type 133-137 ip6 hoplimit != 255
tcp doff < 5
tcp flags & (fin|syn|rst|ack|urg) != { syn, syn|urg, syn|ack, rst, rst|ack, fin|ack, fin|ack|urg, ack, ack|urg }
tcp dport 0
udp dport 0
tcp sport 0
udp length < 8`, "", " counter drop")

	iptablesChecks = dropEach(`-m ttl --ttl-eq 0
-p tcp -m u32 --u32 "4&0x1FFF=1:2"
-p tcp -m u32 --u32 "4&0x3FFF=0x2000" -m u32 ! --u32 "0>>22&0x3C@16=0:0xFFFFFFFF"
-s 224.0.0.0/4
-s 255.255.255.255
-s 127.0.0.0/8
-p tcp ! -f -m tcp --tcp-flags ALL NONE
-p tcp ! -f -m tcp --tcp-flags SYN,FIN SYN,FIN
-p tcp ! -f -m tcp --tcp-flags SYN,RST SYN,RST
-p tcp ! -f -m tcp --tcp-flags FIN,ACK FIN
-p tcp ! -f -m tcp --dport 0
-p udp ! -f -m udp --dport 0
-p tcp ! -f -m tcp --sport 0`, "-A PREROUTING ", " -j DROP")
)

// dropEach adds a text before and after each line.
func dropEach(tests, before, behind string) string {
	var b strings.Builder
	for line := range strings.Lines(tests) {
		b.WriteString(before + strings.TrimSuffix(line, "\n") + behind + "\n")
	}
	return b.String()
}
