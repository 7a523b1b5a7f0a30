package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/display"
	"github.com/floodwall/floodwall/internal/operate"
	"github.com/floodwall/floodwall/internal/testutil"
)

// agreeing is the policy of TestPrometheus: it has the daemon take samples and look for attacks, too.
var agreeing = strings.NewReplacer("9810}", "9810, sample: 1/10}\ndetect: {baseline: learn}",
	"rules:\n", "rules:\n  - {name: served, proto: udp, port: 5000, then: pass}\n").Replace(monitored)

// The packets of a round, and the counters that have one of them each. The packet for port7 is the first of the round: when port7 has
// counted none, the others have neither.
var (
	round   = []string{"udp 198.51.100.1:5 > 192.0.2.1:7 len=500", "udp 198.51.100.2:5 > 192.0.2.1:5000", "udp 198.51.100.3:5 > 192.0.2.1:0"}
	counted = []string{"port7", "served", "port-zero"}
)

// frameBytes is the length of a packet for port7 with its Ethernet header.
const frameBytes = 514

// roundsEach is how many rounds are sent at once. A few packets of neighbor discovery beside them are less than 2%.
const roundsEach = 2000

// ratesAgree sends a short flood. Each source says a rate and the seconds that it is of. Their product is the number of the packets that
// were sent, for `top`, /v1/series, the expressions of the dashboard, and the differences of `status`. The page is open all the time, and
// shows what `status` and /v1/series say.
func (h *apiHost) ratesAgree(p *prometheus) {
	h.Helper()
	waitFor(h.T, "a step without packets", func() bool {
		steps := h.past().Steps
		return len(steps) > 0 && steps[len(steps)-1].Dropped.Packets == 0
	})
	steps := h.past().Steps
	quiet := steps[len(steps)-1].Time
	b := startBrowser(h.T)
	act(b, chromedp.Navigate("http://"+pageAddress+"/"))
	b.shows("state-word", "In force")
	before := h.commandStatus()
	first := rule(before, "port7").Packets
	sent := h.topAgrees()
	p.sum(`floodwall_rule_packets_total{rule="port7"}`, float64(first)+sent)

	after, found := h.commandStatus(), map[string]float64{}
	for _, name := range counted {
		found[name] = float64(rule(after, name).Packets - rule(before, name).Packets)
	}
	agree(h.T, "status", found, sent)

	var past map[string]float64
	waitFor(h.T, "the last step of the packets", func() bool {
		past = map[string]float64{}
		for _, s := range h.past().Steps {
			if s.Time.After(quiet) {
				past["dropped"] += float64(s.Dropped.Packets) / 2
				past["passed"] += float64(s.Passed.Packets)
				for _, r := range s.Reasons {
					if slices.Contains(counted, r.Name) {
						past[r.Name] += float64(r.Packets)
					}
				}
			}
		}
		return past["port7"] >= sent && past["port-zero"] >= sent
	})
	agree(h.T, "/v1/series", past, sent)
	b.ratesAgree(h, after)
	p.dashboardAgrees(float64(first), sent)
}

// ratesAgree compares the totals in the page's table of rules with those of a status, and the rates in the table of its chart, which has a
// row for each half minute, with the means of the steps of /v1/series.
func (b *browser) ratesAgree(h *apiHost, s *control.Status) {
	b.Helper()
	value[bool](b, `(() => { document.getElementById('chart-details').open = true
		const by = document.getElementById('chart-by'); by.value = 'rule'; return by.dispatchEvent(new Event('change')) })()`)
	for _, name := range counted {
		want := display.Rate(float64(rule(s, name).Packets))
		b.until("the page has the packets of "+name+", "+want, func() bool { return b.rows("rules")[name]["packets"] == want })
	}
	b.until("the table of the chart has the rates of the series", func() bool {
		rates := map[string]map[string][]float64{} // by the half minute and the rule
		for _, step := range h.past().Steps {
			from := step.Time.Truncate(30 * time.Second).Local().Format(time.TimeOnly)
			if rates[from] == nil {
				rates[from] = map[string][]float64{}
			}
			for _, name := range counted {
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
				if table[from][name+", packets/s"] != display.Rate(sum/float64(len(list))) {
					return false
				}
			}
		}
		return true
	})
	b.clean(pageAddress)
}

// agree compares the numbers of packets that a source says with the number that was sent.
func agree(t *testing.T, source string, found map[string]float64, sent float64) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !near(found[name], sent) {
			t.Errorf("%s has %.1f packets of %s, want %.0f within 2%%", source, found[name], name, sent)
		}
	}
}

func near(got, want float64) bool { return math.Abs(got-want) <= 0.02*want }

// commandStatus is what `floodwall status --json` prints.
func (h *apiHost) commandStatus() *control.Status {
	h.Helper()
	s := new(control.Status)
	if err := json.Unmarshal([]byte(mustFloodwall(h.T, "status", "--json")), s); err != nil {
		h.Fatal(err)
	}
	return s
}

// rule is a rule or a check of a status, and nothing counted where there is none.
func rule(s *control.Status, name string) (found control.RuleStatus) {
	for _, r := range slices.Concat(s.Rules, s.Checks) {
		if r.Name == name {
			return r
		}
	}
	return found
}

// topAgrees sends rounds while `floodwall top` looks. Nothing says when it begins to look. So it may miss packets on a busy machine, and
// is then asked again, for twice as long. It never says more than were sent. Returned are the rounds of all attempts.
func (h *apiHost) topAgrees() (sent float64) {
	h.Helper()
	const attempts = 5
	var top operate.Top
	for attempt := range attempts {
		top = operate.Top{}
		every := 2 * time.Second << attempt
		c := exec.Command("floodwall", "top", "--once", "--json", "--every", every.String())
		var out, said strings.Builder
		c.Stdout, c.Stderr = &out, &said
		if err := c.Start(); err != nil {
			h.Fatal(err)
		}
		time.Sleep(every / 2)
		err := testutil.SendFor("fw1", round, func(n int) bool {
			if n%20 == 19 {
				time.Sleep(time.Millisecond)
			}
			return n < roundsEach
		})
		sent += roundsEach
		if waited := c.Wait(); err != nil || waited != nil {
			h.Fatalf("%v, %v: %s", err, waited, &said)
		}
		if err := json.Unmarshal([]byte(out.String()), &top); err != nil {
			h.Fatalf("%v: %s", err, &out)
		}
		found := map[string]float64{"dropped": top.Dropped.Packets * top.Seconds / 2, "passed": top.Passed.Packets * top.Seconds}
		for _, r := range top.Reasons {
			if slices.Contains(counted, r.Name) {
				found[r.Name] = r.Packets * top.Seconds
			}
			if r.Name == "port7" {
				found["bytes of port7"] = r.Bits * top.Seconds / 8 / frameBytes
			}
		}
		if found["port7"] > roundsEach+0.5 {
			h.Fatalf("top has %.1f packets of port7, and %d were sent", found["port7"], roundsEach)
		}
		if math.Abs(found["port7"]-roundsEach) < 0.5 && near(found["port-zero"], roundsEach) {
			agree(h.T, "top", found, roundsEach)
			return sent
		}
	}
	h.Fatalf("of %d attempts, top saw all packets in none; the last: %+v", attempts, top)
	return sent
}

// dashboardAgrees evaluates the expressions of the dashboard that are rates of packets. Their range begins and ends at a scrape, so
// that Prometheus has nothing to extrapolate.
func (p *prometheus) dashboardAgrees(first, sent float64) {
	p.Helper()
	var data struct {
		Result []struct{ Values [][2]any }
	}
	if err := p.ask("/api/v1/query?query="+url.QueryEscape(`floodwall_rule_packets_total{rule="port7"}[1m]`), &data); err != nil || len(data.Result) != 1 {
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
		if n == first+sent {
			end = v[0].(float64)
		}
	}
	if begin == 0 || end <= begin {
		p.Fatalf("scrapes of port7, want some with %v and %v: %+v", first, first+sent, data)
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
	each := map[string]float64{ // packets of a round, or bytes, by the panel and a label
		"Dropped ": 2, "Passed ": 1, "Packets by verdict verdict:drop": 2, "Packets by verdict verdict:pass": 1,
		"Packets by rule rule:port7": 1, "Packets by rule rule:served": 1, "Packets by check check:port-zero": 1, "Bytes by rule rule:port7": frameBytes,
	}
	fill, found := strings.NewReplacer("$__rate_interval", fmt.Sprintf("%.0fms", span), "$instance", "127.0.0.1:9810"), map[string]float64{}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			values, err := p.valuesAt(fill.Replace(target.Expr), end)
			if err != nil {
				p.Error(err)
			}
			for labels, rate := range values {
				for _, label := range append(strings.Fields(strings.TrimSuffix(strings.TrimPrefix(labels, "map["), "]")), "") {
					if n, wanted := each[panel.Title+" "+label]; wanted {
						found[panel.Title+" "+label] = rate * span / 1000 / n
					}
				}
			}
		}
	}
	if len(found) != len(each) {
		p.Errorf("the dashboard shows %v, want %v", found, each)
	}
	agree(p.T, "the dashboard", found, sent)
}
