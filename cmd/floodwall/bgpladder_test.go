// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

const ladderPolicy = `devices: [fw0]
default: pass
checks: off
daemon: {sample: 1/10}
detect: {baseline: learn, least: 40/s}
rules: [{name: ntp, proto: udp, sport: 123, then: drop}]
upstream:
  as: 64500
  router_id: 192.0.2.1
  announce: 192.0.2.0/24
  live: true
  auto: flowspec
  line: 2mbit/s
  hold: 1m
  peers: [{address: 192.0.2.254, as: 64501, password_file: %s, ttl_security: 1, hold_time: 9s}]
`

// TestLadder sends a flood that the filter drops. As long as the uplink is not full, nothing may be announced. When the uplink is full, the router
// must get a FlowSpec route for the attack.
func TestLadder(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	l := newLadder(t, ladderPolicy)
	router, s := l.router, l.s

	var conn *net.UDPConn
	router.ns.Do(func() {
		var err error
		conn, err = net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(192, 0, 2, 254), Port: 123}, &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9})
		if err != nil {
			t.Error(err)
		}
	})
	if conn == nil {
		return
	}
	end := make(chan struct{})
	flood := time.NewTicker(8 * time.Millisecond)
	var each atomic.Int32 // packets of a tick: 1 Mbit/s first, 10 Mbit/s later
	each.Store(1)
	go func() {
		for {
			select {
			case <-end:
				return
			case <-flood.C:
				for range each.Load() {
					conn.Write(make([]byte, 1000))
				}
			}
		}
	}()
	defer func() { close(end); flood.Stop(); conn.Close() }()
	waitFor(t, "the daemon sees an attack", func() bool {
		time.Sleep(200 * time.Millisecond)
		return strings.Contains(mustFloodwall(t, "attacks", "--json"), "started")
	})
	time.Sleep(5 * time.Second)
	if out := s.says(0, "nothing is announced", "status"); strings.Contains(out, "flowspec to") {
		t.Errorf("announced on a line that is not full:\n%s", out)
	}
	each.Store(10)
	router.has("flow4 { dst 192.0.2.1/32; src 192.0.2.254/32; proto 17; dport 9; sport 123; length 1028; }", true)
	if out := s.says(0, "daemon", "status"); !strings.Contains(out, "the line of fw0 is full") {
		t.Errorf("status does not say why:\n%s", out)
	}
	metrics, err := get(readSocket, "/v1/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`floodwall_bgp_ladder_total{result="announced"} 1`, `floodwall_bgp_ladder_total{result="dampened"} 0`, `floodwall_bgp_announcements{kind="flowspec"} 1`} {
		if !strings.Contains(metrics.body, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// ladder is a host with a router upstream. Its daemon has learned the usual rate.
type ladder struct {
	router *upstreamRouter
	s      *speakerProcess
}

func newLadder(t *testing.T, text string) ladder {
	t.Helper()
	s, key, file := newSpeakerProcess(t, "word")
	router := newUpstreamRouter(t, "word")
	writeFile(t, file, fmt.Sprintf(text, key))
	mustFloodwall(t, "apply", file)
	t.Cleanup(func() { mustFloodwall(t, "unload") })
	s.start()
	t.Cleanup(s.kill)
	daemon := exec.Command("floodwall", "daemon", "--bgp", s.run)
	var log strings.Builder
	daemon.Stdout, daemon.Stderr = &log, &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		daemon.Process.Kill()
		daemon.Wait()
		if t.Failed() {
			t.Logf("the daemon:\n%s", &log)
		}
	})
	waitFor(t, "the session is established", func() bool { _, code := s.floodwall("status"); return code == 0 })
	time.Sleep(12 * time.Second) // quiet seconds, in which the daemon learns the usual rate
	return ladder{router, s}
}

// TestLadderBlackHole sends a flood that fills the uplink. Its packets have only the destination in common, so each FlowSpec route that matches the
// flood would also drop clients. With `auto: rtbh` the router must get a black hole route. The flood ends at once, but the router must keep the route
// for the minimum hold. It must lose the route after `for`.
func TestLadderBlackHole(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	const hold, lasts = 4 * time.Second, 20 * time.Second // between them is the time that a busy machine needs to see the route
	l := newLadder(t, strings.NewReplacer("auto: flowspec", "auto: rtbh\n  for: "+lasts.String(), "hold: 1m", "hold: "+hold.String()).Replace(ladderPolicy))
	var conns []net.Conn
	l.router.ns.Do(func() {
		for i := range 16 {
			from := fmt.Sprintf("10.%d.0.1", i)
			if out, err := exec.Command("ip", "addr", "add", from+"/32", "dev", "lo").CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
			conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)}, &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9})
			if err != nil {
				t.Error(err)
				return
			}
			conns = append(conns, conn)
		}
	})
	if t.Failed() {
		return
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		flood := time.NewTicker(8 * time.Millisecond)
		defer flood.Stop()
		for n, began := 0, time.Now(); ; {
			select {
			case <-end:
				return
			case <-flood.C:
				for due := 10 * int(time.Since(began)/(8*time.Millisecond)); n < due; n++ { // a busy machine drops ticks
					conns[n%len(conns)].Write(make([]byte, 600+n*37%800))
				}
			}
		}
	}()
	const hole = "(65535,666)"      // the community BLACKHOLE of RFC 7999
	out := l.router.has(hole, true) // the daemon may announce it up to one interval later
	close(end)
	<-ended
	for _, c := range conns {
		c.Close()
	}
	if text := l.router.table(); !strings.Contains(text, "192.0.2.1/32") || strings.Contains(text, "flow4") {
		t.Errorf("the router has not the black hole alone:\n%s", text)
	}
	for {
		text := l.router.table()
		if time.Since(out) > hold {
			break
		}
		if !strings.Contains(text, hole) {
			t.Fatalf("the black hole is gone %v after it came:\n%s", time.Since(out), text)
		}
		time.Sleep(200 * time.Millisecond)
	}
	l.router.has(hole, false)
	metrics, err := get(readSocket, "/v1/metrics")
	if err != nil || !strings.Contains(metrics.body, `floodwall_bgp_ladder_total{result="announced"} 1`+"\n") {
		t.Errorf("%v: the metrics do not count the black hole", err)
	}
}
