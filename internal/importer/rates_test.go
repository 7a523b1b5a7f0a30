// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestRates sends packets over time to rules with rates. For each port, it compares the number of packets that the kernel
// passes with the limits of the imported policy at the times when they were sent. A burst must be exact. The number of
// packets that are added over time may differ by one, because it is unknown when within a call the kernel read its clock.
func TestRates(t *testing.T) {
	for _, of := range []struct {
		input, rules string
		first, last  int            // ports
		slack        map[string]int // the tolerance of the limits that refill: one packet per round and prefix
	}{
		{"iptables-save", ratesOfIptables, 1001, 1006, map[string]int{"1001": 3, "1002": 3, "1003": 6}},
		{"nft", ratesOfNft, 1001, 1006, map[string]int{"1001": 3, "1002": 3, "1003": 3, "1005": 6}},
	} {
		t.Run(of.input, func(t *testing.T) {
			if testutil.Inside(t) {
				c := &testCase{name: of.input, device: []string{"ens3"}, archive: &txtar.Archive{Files: []txtar.File{{Name: of.input, Data: []byte(of.rules)}}}}
				c.compareRates(t, of.first, of.last, of.slack)
			}
		})
	}
}

const ratesOfIptables = `*filter
:INPUT ACCEPT [0:0]
:flood - [0:0]
-A INPUT -p udp --dport 1001 -m limit --limit 60/min --limit-burst 4 -j ACCEPT
-A INPUT -p udp --dport 1001 -j DROP
-A INPUT -p udp --dport 1002 -j flood
-A flood -m limit --limit 1/s --limit-burst 7 -j RETURN
-A flood -j DROP
-A INPUT -p udp --dport 1003 -m hashlimit --hashlimit-above 1/s --hashlimit-burst 3 --hashlimit-mode srcip --hashlimit-srcmask 24 --hashlimit-name h3 -j DROP
-A INPUT -p udp --dport 1004 -m hashlimit --hashlimit-upto 2/hour --hashlimit-burst 2 --hashlimit-mode dstip --hashlimit-name h4 -j ACCEPT
-A INPUT -p udp --dport 1004 -j REJECT
-A INPUT -p udp --dport 1005 -m recent --name r5 --set
-A INPUT -p udp --dport 1005 -m recent --name r5 --rcheck --seconds 3600 --hitcount 5 -j DROP
-A INPUT -p udp --dport 1006 -m recent --name r6 --update --seconds 3600 --hitcount 3 -j DROP
-A INPUT -p udp --dport 1006 -m recent --name r6 --set -j ACCEPT
COMMIT
`

const ratesOfNft = `table inet filter {
	chain input {
		type filter hook input priority 0; policy accept;
		udp dport 1001 limit rate 60/minute burst 4 packets accept
		udp dport 1001 drop
		udp dport 1002 jump flood
		udp dport 1003 limit rate over 1/second drop
		udp dport 1004 limit rate 2/hour burst 2 packets accept
		udp dport 1004 reject
		udp dport 1005 add @each { ip saddr & 255.255.255.0 limit rate over 1/second burst 3 packets } drop
		udp dport 1006 meter every { ip daddr limit rate over 2/hour burst 4 packets } drop
	}
	set each {
		type ipv4_addr
		size 99
		flags dynamic
	}
	chain flood {
		limit rate 1/second burst 7 packets return
		drop
	}
}
`

// compareRates sends packets to the ports.
func (c *testCase) compareRates(t *testing.T, first, last int, slack map[string]int) {
	t.Helper()
	k := c.newKernel(t)
	k.load(t)
	limiter, started := ir.NewLimiter(k.program), time.Now()
	members := k.members(t)
	passed, wanted := map[string]int{}, map[string]int{}
	for round := range 3 {
		if round > 0 {
			time.Sleep(1100 * time.Millisecond)
		}
		var specs []packet.Spec
		var frames [][]byte
		for i := range 12 {
			for port := first; port <= last; port++ {
				for _, from := range []string{"198.51.100.1", "198.51.100.2", "203.0.113.77"} {
					s, err := packet.Parse(fmt.Sprintf("udp %s:%d > 192.0.2.1:%d", from, 4000+i+20*round, port))
					if err != nil {
						t.Fatal(err)
					}
					specs, frames = append(specs, s), append(frames, s.Frame())
				}
			}
		}
		at := time.Since(started)
		for i, f := range k.fates(t, frames) {
			pkt := specs[i].Packet()
			key := fmt.Sprint(pkt.Value[packet.DPort] - packet.PortUDP)
			verdict, _ := k.program.Eval(&pkt, ir.World{Member: members, Over: func(l int, p *packet.Packet) bool { return limiter.Over(l, p, at) }})
			if verdict == ir.Pass {
				wanted[key]++
			}
			if ends(f) != "" {
				passed[key]++
			}
		}
	}
	for port := first; port <= last; port++ {
		key := fmt.Sprint(port)
		took := int(time.Since(started) / time.Second)
		if d := passed[key] - wanted[key]; d < -slack[key]-took*min(slack[key], 1) || d > slack[key]+took*min(slack[key], 1) || passed[key] == 0 {
			t.Errorf("port %s: the kernel passed %d of 108 packets, the policy %d\n%s", key, passed[key], wanted[key], k.result.Policy)
		}
		t.Logf("port %s: the kernel passed %d, the policy %d", key, passed[key], wanted[key])
	}
}
