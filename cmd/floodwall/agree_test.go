// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// The flood of TestViewsAgree has so few packets that a busy machine can send it. It has so many packets that counters differ by more than 2% when
// one view is wrong.
const (
	floodPackets, floodRate   = 40_000, 20_000
	clientPackets, clientRate = 4_000, 2_000
	leastCompared             = 1000 // packets of a rule; a few of neighbor discovery beside them are less than 2%
)

// floodedPolicy protects a web server against floodedFlows.
const floodedPolicy = `devices: [transit, peering]
default: drop
checks: strict
detect: {baseline: learn, quiet: 2s}
sets:
  blocked: [13.0.0.0/8]
  bans: {dynamic: true, max: 100000, timeout: 1h}
rules:
  - {name: listed, from: [$blocked, $bans], then: drop}
services:
  - {name: web, port: [tcp/80, tcp/443]}
  - {name: ssh, port: tcp/22, from: 192.0.2.0/24}
daemon: {listen: ` + pageAddress + `, sample: 1/10}
`

// floodedFlows returns the parts of a volumetric attack on a web server.
func floodedFlows() []lab.Flow {
	server := lab.Addr(netip.MustParseAddr("192.0.2.80"))
	random, listed := lab.In(netip.MustParsePrefix("128.0.0.0/2")), lab.In(netip.MustParsePrefix("13.0.0.0/8"))
	return []lab.Flow{
		{From: random, To: server, SPort: lab.AnyPort, DPort: lab.AnyPort, Size: 128, Weight: 12},
		{From: random, To: server, SPort: lab.Port(53), DPort: lab.AnyPort, Size: 512, Weight: 9},
		{From: random, To: server, Proto: lab.TCP, SPort: lab.AnyPort, DPort: lab.Port(80), Flags: lab.SYN | lab.FIN, Weight: 9},
		{From: random, To: server, Proto: lab.TCP, SPort: lab.AnyPort, DPort: lab.AnyPort, Flags: lab.ACK, Weight: 25},
		{From: listed, To: server, SPort: lab.AnyPort, DPort: lab.AnyPort, Size: 128, Weight: 5},
		{From: listed, To: server, Proto: lab.TCP, SPort: lab.AnyPort, DPort: lab.Port(80), Flags: lab.SYN, Options: lab.SYNOptions, Weight: 40},
	}
}

// flooded is a host that runs floodedPolicy and a daemon. The flood arrives at the device transit, and the packets of clients
// arrive at the device peering.
type flooded struct {
	*apiHost
	devices [2]*lab.Device
	sources [2]*lab.Source
}

// newFlooded applies the policy, and starts the daemon.
func newFlooded(t *testing.T) *flooded {
	t.Helper()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, policy, floodedPolicy)
	sh(t, "ip link del fw0")
	t.Setenv("SSH_CONNECTION", "192.0.2.7 50000 192.0.2.80 22")
	l, err := lab.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	server, err := l.Own("server")
	if err != nil {
		t.Fatal(err)
	}
	f := &flooded{}
	clients := []lab.Flow{{From: lab.Addr(netip.MustParseAddr("20.0.0.2")), To: lab.Addr(netip.MustParseAddr("192.0.2.80")), Proto: lab.TCP,
		SPort: lab.AnyPort, DPort: lab.Port(80), Flags: lab.SYN, Options: lab.SYNOptions}}
	for i, end := range []struct {
		device, own, far string
		send             lab.SourceOptions
	}{
		{"transit", "192.0.2.80/24", "192.0.2.1/24", lab.SourceOptions{Flows: floodedFlows(), Count: floodPackets, Rate: floodRate, Seed: 1}},
		{"peering", "20.0.0.1/24", "20.0.0.2/24", lab.SourceOptions{Flows: clients, Count: clientPackets, Rate: clientRate, Seed: 1}},
	} {
		outside, err := l.Host(end.device)
		if err != nil {
			t.Fatal(err)
		}
		var from *lab.Device
		if f.devices[i], from, err = l.Connect(server, outside, lab.LinkOptions{
			A: lab.EndOptions{Name: end.device, Addrs: lab.ParseAddrs(end.own)}, B: lab.EndOptions{Addrs: lab.ParseAddrs(end.far)},
		}); err != nil {
			t.Fatal(err)
		}
		if f.sources[i], err = l.NewSource(from, end.send); err != nil {
			t.Fatal(err)
		}
	}
	mustFloodwall(t, "apply", policy)
	f.apiHost = startDaemon(t)
	waitFor(t, "an answer on "+pageAddress, func() bool { return reachable(pageAddress) })
	return f
}

// send sends the flood and the packets of the clients at the same time, for two seconds.
func (f *flooded) send() {
	f.Helper()
	done := make(chan error)
	for _, s := range f.sources {
		go func() { done <- s.Run(f.Context()) }()
	}
	for range f.sources {
		if err := <-done; err != nil {
			f.Fatal(err)
		}
	}
}

// compared are the names of the rules and checks whose counters are compared.
var compared = []string{"listed", "tcp-flags", "web", "default"}

// sendUntil sends until each of the named rules has counted enough packets since the status first. It returns the last status and these counts. A
// busy machine loses most of a flood before a device receives it, so one flood may not be enough.
func (f *flooded) sendUntil(first *control.Status, names []string) (last *control.Status, came viewed) {
	f.Helper()
	for range 30 {
		last = f.commandStatus()
		came = tallied(last).since(tallied(first))
		if !slices.ContainsFunc(names, func(name string) bool { return came[name] == 0 }) {
			return last, came
		}
		f.send()
	}
	f.Fatalf("of the flood, `status` does not have enough of each of %v: %v", names, came)
	return nil, nil
}

// viewed has packet counts. The key is the name of a rule or check, or a name that the view has for a total.
type viewed map[string]float64

// tallied returns the packet and byte counts in a status.
func tallied(s *control.Status) viewed {
	c := viewed{}
	for _, r := range append(slices.Concat(s.Rules, s.Checks), s.Default) {
		c[r.Name] += float64(r.Packets)
		c["bytes of "+r.Name] += float64(r.Bytes)
		c[map[bool]string{true: "passed", false: "dropped"}[r.Verdict == "pass"]] += float64(r.Packets)
	}
	return c
}

// since returns the difference between two sets of counts. It leaves out rules with fewer than leastCompared packets.
func (c viewed) since(before viewed) viewed {
	found := viewed{}
	for name, n := range c {
		if rule := strings.TrimPrefix(name, "bytes of "); c[rule]-before[rule] >= leastCompared {
			found[name] = n - before[name]
		}
	}
	return found
}

// agrees checks that the counts of a source equal the counts of `status`.
func (f *flooded) agrees(source string, found, want viewed) {
	f.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !near(found[name], want[name]) {
			f.Errorf("%s has %.1f for %s, want %.0f within 2%%", source, found[name], name, want[name])
		}
	}
}

func near(got, want float64) bool { return math.Abs(got-want) <= 0.02*want }

// TestViewsAgree sends a flood to a web server with a policy. Each view shows a rate and a time span. For `top`,
// /v1/series and the expressions of the dashboard, rate times time span must equal the packets that `status` counted in this time. The count of
// `status` must equal the number of packets that the devices received. The page is open all the time, and must show the same numbers as `status` and
// /v1/series.
func TestViewsAgree(t *testing.T) {
	if !inside(t) {
		return
	}
	f := newFlooded(t)
	p := startPrometheus(t)
	var quiet time.Time
	waitFor(t, "a step without packets", func() bool {
		steps := f.past().Steps
		if len(steps) == 0 || steps[len(steps)-1].Dropped.Packets > 0 {
			return false
		}
		quiet = steps[len(steps)-1].Time
		return true
	})
	b := startBrowser(t)
	b.open(pageAddress)
	b.shows("state-word", "In force")
	first, received := f.commandStatus(), f.received()
	const scrapes = `floodwall_rule_packets_total{rule="listed"}`
	p.sum(scrapes, tallied(first)["listed"])
	f.topAgrees()
	last, want := f.sendUntil(first, compared)
	p.sum(scrapes, tallied(last)["listed"])
	if n := f.received() - received; !near(want["dropped"]+want["passed"], n) {
		t.Errorf("the devices received %.0f packets, and `status` has %.0f dropped and %.0f passed", n, want["dropped"], want["passed"])
	}

	var past viewed
	waitFor(t, "the last step of the packets", func() bool {
		past = viewed{}
		for _, s := range f.past().Steps {
			if s.Time.After(quiet) {
				past["dropped"] += float64(s.Dropped.Packets)
				past["passed"] += float64(s.Passed.Packets)
				for _, r := range s.Reasons {
					past[r.Name] += float64(r.Packets)
					past["bytes of "+r.Name] += float64(r.Bytes)
				}
			}
		}
		return past["dropped"] >= want["dropped"] && past["passed"] >= want["passed"]
	})
	f.agrees("/v1/series", past, want)
	b.ratesAgree(f.apiHost, last, compared)
	p.dashboardAgrees(f, tallied(first)["listed"], want)
}

// received returns the number of packets that the drivers of both devices have counted.
func (f *flooded) received() (n float64) {
	f.Helper()
	for _, d := range f.devices {
		c, err := d.DriverCounts()
		if err != nil {
			f.Fatal(err)
		}
		n += float64(c.Received)
	}
	return n
}

// ratesAgree compares the page with other sources. The totals in its table of rules must equal a status. The table of its chart has a row for each
// half minute. The rates in this table must equal the means of the steps of /v1/series.
func (b *browser) ratesAgree(h *apiHost, s *control.Status, names []string) {
	b.Helper()
	value[bool](b, `(() => { document.getElementById('chart-details').open = true
		const by = document.getElementById('chart-by'); by.value = 'rule'; return by.dispatchEvent(new Event('change')) })()`)
	for _, name := range names {
		want := wording.Rate(tallied(s)[name])
		b.until("the page has the packets of "+name+", "+want, func() bool { return b.rows("rules")[name]["packets"] == want })
	}
	b.until("the table of the chart has the rates of the series", func() bool {
		rates := map[string]map[string][]float64{} // by the half minute and the rule
		for _, step := range h.past().Steps {
			from := step.Time.Truncate(30 * time.Second).Local().Format(time.TimeOnly)
			if rates[from] == nil {
				rates[from] = map[string][]float64{}
			}
			for _, name := range names {
				rates[from][name] = append(rates[from][name], 0)
			}
			for _, r := range step.Reasons {
				if list := rates[from][r.Name]; list != nil {
					list[len(list)-1] = float64(r.Packets) / step.Seconds
				}
			}
		}
		table := b.rows("chart-table")
		for from, rules := range rates {
			for name, list := range rules {
				sum := 0.0
				for _, rate := range list {
					sum += rate
				}
				if table[from][name+", packets/s"] != wording.Rate(sum/float64(len(list))) {
					return false
				}
			}
		}
		return true
	})
	b.clean(pageAddress)
}

// commandStatus returns the output of `floodwall status --json`.
func (h *apiHost) commandStatus() *control.Status {
	h.Helper()
	s := new(control.Status)
	if err := json.Unmarshal([]byte(mustFloodwall(h.T, "status", "--json")), s); err != nil {
		h.Fatal(err)
	}
	return s
}

// topAgrees sends the flood while `floodwall top` observes. The test does not know when top starts to observe, so top may miss packets on a busy
// machine. The test then repeats this with twice the time. top must never report more packets than were sent.
func (f *flooded) topAgrees() {
	f.Helper()
	const attempts = 5
	var found, want viewed
	for attempt := range attempts {
		before, top := f.commandStatus(), operate.Top{}
		every := 4 * time.Second << attempt
		c := exec.Command("floodwall", "top", "--once", "--json", "--every", every.String())
		var out, said strings.Builder
		c.Stdout, c.Stderr = &out, &said
		if err := c.Start(); err != nil {
			f.Fatal(err)
		}
		time.Sleep(every / 4)
		f.send()
		if err := c.Wait(); err != nil {
			f.Fatalf("%v: %s", err, &said)
		}
		if err := json.Unmarshal([]byte(out.String()), &top); err != nil {
			f.Fatalf("%v: %s", err, &out)
		}
		want = tallied(f.commandStatus()).since(tallied(before))
		found = viewed{"dropped": top.Dropped.Packets * top.Seconds, "passed": top.Passed.Packets * top.Seconds}
		for _, r := range top.Reasons {
			found[r.Name], found["bytes of "+r.Name] = r.Packets*top.Seconds, r.Bits*top.Seconds/8
		}
		missed := 0
		for name, n := range want {
			if found[name] > 1.02*n {
				f.Fatalf("top has %.1f for %s, and %.0f came", found[name], name, n)
			}
			if !near(found[name], n) {
				missed++
			}
		}
		if missed == 0 {
			return
		}
	}
	f.agrees(fmt.Sprintf("top, in the last of %d attempts,", attempts), found, want)
}

// dashboardAgrees evaluates the dashboard's expressions for packet rates. The time range starts and ends at a scrape, so that Prometheus does not
// extrapolate.
func (p *prometheus) dashboardAgrees(f *flooded, first float64, want viewed) {
	p.Helper()
	var data struct {
		Result []struct{ Values [][2]any }
	}
	if err := p.ask("/api/v1/query?query="+url.QueryEscape(`floodwall_rule_packets_total{rule="listed"}[5m]`), &data); err != nil || len(data.Result) != 1 {
		p.Fatalf("%v: %+v", err, data)
	}
	var begin, end float64
	for _, v := range data.Result[0].Values {
		n, err := strconv.ParseFloat(fmt.Sprint(v[1]), 64)
		if err != nil {
			p.Fatal(err)
		}
		if n == first {
			begin = v[0].(float64)
		}
		if n == first+want["listed"] {
			end = v[0].(float64)
		}
	}
	if begin == 0 || end <= begin {
		p.Fatalf("scrapes of listed, want some with %v and %v: %+v", first, first+want["listed"], data)
	}
	span := math.Round(1000*(end-begin)) + 1
	text, err := os.ReadFile("../../contrib/grafana/floodwall.json")
	if err != nil {
		p.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		p.Fatal(err)
	}
	shown := map[string]string{ // by the panel and a label
		"Dropped ": "dropped", "Passed ": "passed", "Packets by verdict verdict:drop": "dropped", "Packets by verdict verdict:pass": "passed",
		"Packets by rule rule:listed": "listed", "Packets by rule rule:web": "web", "Packets by check check:tcp-flags": "tcp-flags",
		"Bytes by rule rule:listed": "bytes of listed",
	}
	fill, seen := strings.NewReplacer("$__rate_interval", fmt.Sprintf("%.0fms", span), "$instance", pageAddress), 0
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			values, err := p.valuesAt(fill.Replace(target.Expr), end)
			if err != nil {
				p.Error(err)
			}
			for labels, rate := range values {
				for _, label := range append(strings.Fields(strings.TrimSuffix(strings.TrimPrefix(labels, "map["), "]")), "") {
					if name, wanted := shown[panel.Title+" "+label]; wanted {
						seen++
						f.agrees("the dashboard's "+panel.Title, viewed{name: rate * span / 1000}, viewed{name: want[name]})
					}
				}
			}
		}
	}
	if seen != len(shown) {
		p.Errorf("the dashboard shows %d of %v", seen, shown)
	}
}
