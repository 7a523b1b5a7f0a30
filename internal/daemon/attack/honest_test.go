// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// tcpFrom returns a TCP segment with sequence and acknowledgment numbers.
func tcpFrom(client string, port int, flags string, seq, ack uint32, more string) string {
	return fmt.Sprintf("tcp %s > 192.0.2.1:%d %s seq=%d ack=%d %s", client, port, flags, seq, ack, more)
}

func tcpTo(client string, port int, flags string, seq, ack uint32, more string) string {
	return fmt.Sprintf("%stcp 192.0.2.1:%d > %s %s seq=%d ack=%d %s", leaves, port, client, flags, seq, ack, more)
}

const (
	windowsOptions = "ttl=118 tcpopts=mss:1460,nop,ws:8,nop,nop,sack" // 52 bytes
	linuxOptions   = "ttl=52 tcpopts=mss:1460,sack,ts,nop,ws:7"
)

// opened returns the packets of a handshake, and the next sequence numbers of the client and of this host.
func opened(r *rand.Rand, client string, port int, options string) (list []string, seq, ack uint32) {
	seq, ack = r.Uint32(), r.Uint32()
	return []string{
		tcpFrom(client, port, "S", seq, 0, options), tcpTo(client, port, "SA", ack, seq+1, "tcpopts=mss:1460"), tcpFrom(client, port, "A", seq+1, ack+1, ""),
	}, seq + 1, ack + 1
}

// visit returns the packets of a connection with a request of this many segments, and an answer.
func visit(r *rand.Rand, client string, port int, options string, segments int) []string {
	list, seq, ack := opened(r, client, port, options)
	for range segments {
		list = append(list, tcpFrom(client, port, "PA", seq, ack, fmt.Sprintf("len=%d payload=0x%08x", 200+r.IntN(900), r.Uint32())))
		list = append(list, tcpTo(client, port, "A", ack, seq+100, "len=1400"), tcpFrom(client, port, "A", seq+100, ack+1360, ""))
		seq, ack = seq+100, ack+1360
	}
	return append(list, tcpFrom(client, port, "FA", seq, ack, ""), tcpTo(client, port, "FA", ack, seq+1, ""), tcpFrom(client, port, "A", seq+1, ack+1, ""))
}

func clientOf(r *rand.Rand, network string, n int) string {
	return fmt.Sprintf("%s.%d.%d:%d", network, r.IntN(1+n/250), 1+r.IntN(min(n, 250)), 32768+r.IntN(28000))
}

func hostOf(r *rand.Rand, network string, n int) string {
	a, _, _ := strings.Cut(clientOf(r, network, n), ":")
	return a
}

// datagrams returns a client's datagrams to a service. Each datagram gets an answer.
func datagrams(client, port string, bodies ...string) (list []string) {
	for _, b := range bodies {
		list = append(list, fmt.Sprintf("udp %s > 192.0.2.1:%s %s", client, port, b), fmt.Sprintf("%sudp 192.0.2.1:%s > %s %s", leaves, port, client, b))
	}
	return list
}

func body(r *rand.Rand, begin string) string {
	return fmt.Sprintf("payload=0x%s%08x%08x", begin, r.Uint32(), r.Uint32())
}

// playing returns the traffic of clients that continue to use a service. Each address uses one port.
func playing(network string, clients int, port, begin string) func(*rand.Rand) []string {
	return func(r *rand.Rand) []string {
		n := r.IntN(clients)
		return datagrams(fmt.Sprintf("%s.%d.%d:%d", network, n/250, 1+n%250, 40000+n), port, body(r, begin))
	}
}

// honestLoads returns the loads of honest senders. Each has at least 1,200 packets a second, more than the bound.
func honestLoads() map[string]exchange {
	resolves := func(length int) func(*rand.Rand) []string {
		return func(r *rand.Rand) []string {
			server, here, id := fmt.Sprintf("60.1.%d.%d", r.IntN(40), 1+r.IntN(200)), 32768+r.IntN(28000), r.IntN(65536)
			return []string{
				fmt.Sprintf("%sudp 192.0.2.1:%d > %s:53 dns=A,www.example,id:%d", leaves, here, server, id),
				fmt.Sprintf("udp %s:53 > 192.0.2.1:%d len=%d dns=A,www.example,id:%d,response", server, here, length+r.IntN(100), id),
			}
		}
	}
	ping := func(network string, n int) func(*rand.Rand) []string {
		return func(r *rand.Rand) []string {
			from := hostOf(r, network, n)
			return []string{fmt.Sprintf("icmp %s > 192.0.2.1 echo-request len=84 ttl=52", from), fmt.Sprintf("%sicmp 192.0.2.1 > %s echo-reply len=84", leaves, from)}
		}
	}
	web := func(network string, n int, options string, segments int) func(*rand.Rand) []string {
		return func(r *rand.Rand) []string { return visit(r, clientOf(r, network, n), 443, options, segments) }
	}
	check := func(reset string) func(*rand.Rand) []string {
		return func(r *rand.Rand) []string {
			c := clientOf(r, "41.1", 3)
			list, seq, ack := opened(r, c, 443, linuxOptions)
			return append(list, tcpFrom(c, 443, reset, seq, ack, ""))
		}
	}
	stream := func(r *rand.Rand) []string { // an upload, of which every third segment is acknowledged
		c, list := "41.7.9.20:50000", []string(nil)
		for i := range 3 {
			list = append(list, tcpFrom(c, 443, "A", r.Uint32(), 7, fmt.Sprintf("len=1500 payload=0x%08x", r.Uint32())))
			if i == 2 {
				list = append(list, tcpTo(c, 443, "A", 7, r.Uint32(), ""))
			}
		}
		return list
	}
	return map[string]exchange{
		"health checks that reset": {500, check("RA")},
		"health checks that close": {500, check("FA")},
		"a monitor that pings":     {1500, ping("41.2", 5)},
		"many who ping":            {1500, ping("41.3", 400)},
		"logins of a game": {700, func(r *rand.Rand) []string {
			return datagrams(clientOf(r, "41.4", 2000), "27015", body(r, "4c4f474e"), body(r, "0001"), body(r, "0002"), body(r, "0003"))
		}},
		"players":                       {2000, playing("45.83", 240, "27015", "")},
		"players of many networks":      {2500, playing("64.7", 1500, "27015", "")},
		"a busy resolver":               {1800, resolves(120)},
		"a resolver with large answers": {1800, resolves(1200)},
		"visitors of the web":           {150, web("41.5", 2000, windowsOptions, 2)},
		"visitors with Linux":           {150, web("41.6", 2000, linuxOptions, 2)},
		"an upload":                     {600, stream},
		"one NAT of a thousand players": {2500, func(r *rand.Rand) []string {
			return datagrams(fmt.Sprintf("41.20.30.40:%d", 20000+r.IntN(1000)), "27015", body(r, ""))
		}},
		"calls":                      {2000, playing("41.8", 100, "5000", "8078")},
		"devices that connect again": {400, func(r *rand.Rand) []string { return visit(r, clientOf(r, "41.9", 5000), 8883, linuxOptions, 1) }},
		"a CDN of four addresses":    {150, web("41.100", 4, linuxOptions, 3)},
		"queries of server lists": {1500, func(r *rand.Rand) []string {
			return datagrams(clientOf(r, "41.11", 300), "27015", "payload=0xffffffff54536f7572636520456e67696e6520517565727900")
		}},
		"WireGuard": {1500, playing("41.12", 150, "5000", "04000000")},
		"mail":      {200, func(r *rand.Rand) []string { return visit(r, clientOf(r, "41.13", 500), 25, linuxOptions, 3) }},
		"clients of DNS": {1500, func(r *rand.Rand) []string {
			return datagrams(clientOf(r, "41.14", 300), "5000", fmt.Sprintf("payload=0x%04x01000001", r.IntN(65536)))
		}},
		"typing": {700, func(r *rand.Rand) []string { return visit(r, clientOf(r, "41.15", 50), 22, linuxOptions, 1) }},
		"time from many servers": {1500, func(r *rand.Rand) []string {
			server := hostOf(r, "61.1", 50)
			return []string{fmt.Sprintf("%sudp 192.0.2.1:123 > %s:123 len=76 payload=0x23", leaves, server), fmt.Sprintf("udp %s:123 > 192.0.2.1:123 len=76 payload=0x24", server)}
		}},
		"a database over one connection": {600, func(r *rand.Rand) []string {
			c := "41.16.0.1:45000"
			return []string{tcpFrom(c, 5432, "PA", r.Uint32(), 9, "len=300"), tcpTo(c, 5432, "PA", 9, r.Uint32(), "len=900"), tcpFrom(c, 5432, "A", r.Uint32(), 9, "")}
		}},
		"players behind carrier NAT": {2000, func(r *rand.Rand) []string {
			return datagrams(fmt.Sprintf("41.17.0.%d:%d", 1+r.IntN(8), 1024+r.IntN(64000)), "27015", body(r, ""))
		}},
		"telephones that register": {1300, func(r *rand.Rand) []string {
			n := r.IntN(400)
			return datagrams(fmt.Sprintf("41.18.%d.%d:5060", n/200, 1+n%200), "5000", body(r, "52454749535445522073"))
		}},
		"a monitor that asks all services": {900, func(r *rand.Rand) []string {
			return append(datagrams("41.19.0.1:40001", "27015", body(r, "")), datagrams("41.19.0.1:40002", "5000", body(r, ""))...)
		}},
		"connections that time out": {400, func(r *rand.Rand) []string {
			list, _, _ := opened(r, clientOf(r, "41.21", 60), 443, linuxOptions)
			return list
		}},
		"players of IPv6": {2000, func(r *rand.Rand) []string {
			n := r.IntN(200)
			c := fmt.Sprintf("[2001:db8:1:%x::1]:%d", n, 40000+n)
			b := body(r, "")
			return []string{fmt.Sprintf("udp %s > [2001:db8::1]:27015 %s", c, b), fmt.Sprintf("%sudp [2001:db8::1]:27015 > %s %s", leaves, c, b)}
		}},
		"IKE from well-known ports": {1400, func(r *rand.Rand) []string {
			n := r.IntN(120)
			return datagrams(fmt.Sprintf("41.22.0.%d:500", 1+n), "5000", body(r, ""))
		}},
		"a proxy that asks elsewhere": {1500, func(r *rand.Rand) []string {
			server, here := hostOf(r, "62.1", 300), 32768+r.IntN(28000)
			return []string{fmt.Sprintf("%sudp 192.0.2.1:%d > %s:443 %s", leaves, here, server, body(r, "c3")), fmt.Sprintf("udp %s:443 > 192.0.2.1:%d len=1200 %s", server, here, body(r, "c3"))}
		}},
		"a NAT of visitors": {150, web("41.23", 1, windowsOptions, 2)},
	}
}

// floodsBeside returns attacks that share properties with honest loads.
func floodsBeside() []modelled {
	windowsSYN := func(r *rand.Rand) (string, string) {
		from := fmt.Sprintf("%s:%d", anybody(r), 1024+r.IntN(60000))
		seq := r.Uint32()
		return tcpFrom(from, 443, "S", seq, 0, windowsOptions), strings.TrimPrefix(tcpTo(from, 443, "SA", r.Uint32(), seq+1, ""), leaves)
	}
	reflectors := func(r *rand.Rand) (string, string) {
		return fmt.Sprintf("tcp %s:%d > 192.0.2.1:%d SA ack=%d ttl=50", anybody(r), []int{80, 443, 22, 53}[r.IntN(4)], 1024+r.IntN(60000), r.Uint32()), ""
	}
	flood := func(next func(*rand.Rand) (string, string)) modelled { return modelled{always(3000), false, next} }
	return []modelled{
		flood(dnsKind), flood(ntpKind), flood(windowsSYN), flood(kind("udp %s:%d > 192.0.2.1:27015 payload=0x4c4f474e0badc0de")),
		flood(kind("tcp %s:%d > 192.0.2.1:443 A seq=1 ack=2")), flood(func(r *rand.Rand) (string, string) {
			return fmt.Sprintf("icmp %s > 192.0.2.1 echo-request len=84 ttl=52", anybody(r)), ""
		}),
		flood(reflectors), flood(cldapKind), flood(kind("udp %s:%d > 192.0.2.1:27015 payload=0xffffffff54536f7572636520456e67696e6520517565727900")),
	}
}

// alike maps honest loads to the index of the flood in floodsBeside with the most similar packets.
var alike = map[string]int{
	"a resolver with large answers": 0, "time from many servers": 1, "visitors of the web": 2, "logins of a game": 3, "health checks that reset": 4,
	"many who ping": 5, "a monitor that pings": 5, "a proxy that asks elsewhere": 6, "queries of server lists": 8, "a NAT of visitors": 2, "a busy resolver": 0,
}

// TestHonestLoads plays each honest load alone and during attacks, from senders that are not in the baseline. No load may count as an attack, and no
// packet of a load may be dropped. The short form plays a load that no flood resembles in only one of these ways. The long form plays each load
// beside each attack, with five seeds.
func TestHonestLoads(t *testing.T) {
	t.Parallel()
	floods := floodsBeside()
	number := 0
	for _, name := range sortedNames(honestLoads()) {
		number++
		beside := []int{-1}
		if flood, ok := alike[name]; ok {
			beside = append(beside, flood)
		} else if number%2 == 0 {
			beside = []int{number % len(floods)}
		}
		seeds := 1
		if testutil.Long() {
			seeds, beside = 5, []int{-1}
			for i := range floods {
				beside = append(beside, i)
			}
		}
		for seed := range seeds {
			for _, flood := range beside {
				t.Run(fmt.Sprintf("%s/%d/%d", strings.ReplaceAll(name, " ", "-"), flood, seed), func(t *testing.T) {
					t.Parallel()
					of := honestLoads()[name]
					honestLoad(t, &of, uint64(seed), flood)
				})
			}
		}
	}
}

func honestLoad(t *testing.T, of *exchange, seed uint64, flood int) {
	s := newStage(t)
	s.Hosts = append(s.Hosts, netip.MustParseAddr("2001:db8::1"))
	s.draw = rand.New(rand.NewPCG(seed, uint64(flood)))
	usual := []modelled{
		{always(170), true, visitors(60, 40, "203.0", "27015")}, {always(80), true, visitors(20, 18, "198.18", "5000")},
		{always(20), true, func(r *rand.Rand) (string, string) {
			return "tcp 203.0.113.9:40000 > 192.0.2.1:443 A len=600", "tcp 192.0.2.1:443 > 203.0.113.9:40000 A len=1200"
		}},
	}
	s.play(quietTime, usual...)
	called := func() {
		for _, e := range s.Events {
			if strings.Contains(e.Text, "attack 20") && flood < 0 {
				t.Errorf("%.1f s: %s", e.Seconds-quietTime.Seconds(), e.Text)
			}
		}
	}
	if flood < 0 {
		s.exchanges(goOnFor+2*time.Second, of, usual...)
	} else {
		s.play(2*time.Second, append(usual, floodsBeside()[flood])...) // the load begins at a time at which rules may exist
		s.exchanges(7*time.Second, of, append(usual, floodsBeside()[flood])...)
	}
	called()
	if len(s.cut) > 0 {
		t.Errorf("%d senders are cut off, %d of %d packets: %+v", len(s.cut), s.honestDropped, s.honest, s.Events)
	}
}

func sortedNames(of map[string]exchange) []string { return slices.Sorted(maps.Keys(of)) }
