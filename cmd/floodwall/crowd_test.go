// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// echoes starts a UDP server that returns each packet to its sender. It sets routes so that answers to all senders leave the host.
func echoes(t *testing.T, address string) {
	t.Helper()
	sh(t, "ip link set fw0 address 02:00:00:00:00:02; sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.fw0.rp_filter=0; "+
		"ip neigh replace 192.0.2.99 lladdr 02:00:00:00:00:99 dev fw0 nud permanent; ip route replace default via 192.0.2.99 dev fw0")
	c, err := net.ListenPacket("udp4", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 2000)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			c.WriteTo(b[:n], from)
		}
	}()
}

// TestCrowd simulates a crowd: newcomers send ten times as many packets as usual to a service, and the host answers them. The daemon must report a
// crowd and no attack, and add no rule. Then a flood of the same rate that gets no answers arrives in addition. It must count as an attack, and the
// rule against it must drop no newcomer.
func TestCrowd(t *testing.T) {
	if !inside(t) {
		return
	}
	state := t.TempDir()
	file := automatic(t, state, "{collateral: 0.5%, max: 3}")
	echoes(t, "192.0.2.1:5000")
	mustFloodwall(t, "apply", file, "--state", state)
	h := startUnitDaemon(t, "--state", state, "--json")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon said:\n%s", h.said)
		}
	})
	sendMeanwhile(t, "fw1", 75*time.Millisecond, legitimate...)
	time.Sleep(12 * time.Second) // the daemon learns which clients are answered
	var crowd []string
	for i := range 100 {
		crowd = append(crowd, fmt.Sprintf("udp 45.83.12.%d:%d > 192.0.2.1:5000 len=%d payload=0x%08x", 1+i%50, 4000+i%50, 60+i, 0x1000*i))
	}
	sendMeanwhile(t, "fw1", 50*time.Millisecond, crowd...)
	waitFor(t, "the daemon to say that there is a crowd", func() bool { return strings.Contains(h.said.String(), "no attack, but a crowd at") })
	time.Sleep(3 * time.Second)
	if list := h.attacksOf(); list.Active != 0 || len(list.Attacks) != 0 {
		t.Errorf("a crowd is called an attack: %+v", list)
	}
	sendMeanwhile(t, "fw1", 20*time.Millisecond, ntpFlood()...)
	waitFor(t, "a rule that drops the flood", func() bool {
		list := temporaryRules(t)
		return len(list) > 0 && list[0].Packets > 100
	})
	for _, p := range crowd[:50] {
		if got := verdict(t, p); got != "pass default" {
			t.Errorf("%s: %s, by one of %+v", p, got, temporaryRules(t))
		}
	}
}
