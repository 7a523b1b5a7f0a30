// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// scraped is the policy monitored, with samples and detection added. The dashboard uses metrics that exist only with these.
var scraped = strings.Replace(monitored, "9810}", "9810, sample: 1/10}\ndetect: {baseline: learn}", 1)

// monitored is a policy that has all kinds of metrics: rules, checks, sets, a limit that bans, and a protected service.
const monitored = `devices: [fw0]
default: pass
checks: standard
daemon: {listen: 127.0.0.1:9810}
sets: {bans: {dynamic: true, max: 100, timeout: 1h}}
rules:
  - {name: listed, from: $bans, then: drop}
  - {name: port7, proto: udp, port: 7, then: drop}
  - {name: flood, proto: udp, port: 9, over: {rate: 2/day, per: from, burst: 2, max: 1000, ban: {for: 10m, trust: forgeable}}, then: drop}
services:
  - {name: web, port: tcp/80, syn: {mode: host}}
`

// prometheus is a Prometheus server that scrapes the daemon.
type prometheus struct {
	*testing.T
	log *lines
}

const prometheusAddress = "127.0.0.1:9090"

// startPrometheus starts a Prometheus server with the files of contrib. It scrapes every two seconds, because on a busy machine a scrape may take
// that long.
func startPrometheus(t *testing.T) *prometheus {
	t.Helper()
	testutil.RequireTool(t, "prometheus")
	dir := t.TempDir()
	config, err := os.ReadFile("../../contrib/prometheus/prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(config), "scrape_interval: 15s", "scrape_interval: 2s\n  scrape_timeout: 2s\n  evaluation_interval: 1s", 1)
	rules, err := filepath.Abs("../../contrib/prometheus/floodwall.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	text = strings.Replace(text, "[floodwall.rules.yml]", "["+strconv.Quote(rules)+"]", 1)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &prometheus{T: t, log: new(lines)}
	cmd := exec.Command("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+prometheusAddress, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := testutil.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return p
}

// ask sends a request to the HTTP API of Prometheus, and decodes the answer.
func (p *prometheus) ask(path string, into any) error {
	a, err := request(client(prometheusAddress), http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	var outer struct {
		Status string
		Error  string
		Data   json.RawMessage
	}
	if err := json.Unmarshal([]byte(a.body), &outer); err != nil || outer.Status != "success" {
		return fmt.Errorf("%d %s %s: %v", a.status, outer.Status, outer.Error, err)
	}
	return json.Unmarshal(outer.Data, into)
}

// values returns the results of a query. The keys are their labels.
func (p *prometheus) values(query string) (map[string]float64, error) {
	return p.answer("/api/v1/query?query=" + url.QueryEscape(query))
}

// valuesAt returns the results of a query at a time, in seconds since 1970. The keys are their labels.
func (p *prometheus) valuesAt(query string, at float64) (map[string]float64, error) {
	return p.answer(fmt.Sprintf("/api/v1/query?time=%.3f&query=%s", at, url.QueryEscape(query)))
}

func (p *prometheus) answer(path string) (map[string]float64, error) {
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	if err := p.ask(path, &data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	found := map[string]float64{}
	for _, r := range data.Result {
		n, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		found[fmt.Sprint(r.Metric)] = n
	}
	return found, nil
}

// sum waits until the sum of a query's results equals a number.
func (p *prometheus) sum(query string, want float64) {
	p.Helper()
	var got map[string]float64
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		got, err = p.values(query)
		total := 0.0
		for _, v := range got {
			total += v
		}
		if err == nil && total == want && len(got) > 0 {
			return
		}
	}
	var targets any
	p.ask("/api/v1/targets", &targets)
	p.Fatalf("%s is %v (%v), want %v; Prometheus said:\n%s%v", query, got, err, want, p.log, targets)
}

// expressions returns the expressions of a dashboard, with its variables set for one host.
func expressions(t *testing.T, file string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(text) {
		t.Fatalf("%s is not JSON", file)
	}
	fill := strings.NewReplacer("$__rate_interval", "1m", "$instance", "127.0.0.1:9810")
	for _, m := range regexp.MustCompile(`"expr": ("(?:[^"\\]|\\.)*")`).FindAllStringSubmatch(string(text), -1) {
		var expression string
		if err := json.Unmarshal([]byte(m[1]), &expression); err != nil {
			t.Fatal(err)
		}
		list = append(list, fill.Replace(expression))
	}
	return list
}

// TestPrometheus scrapes the daemon with Debian's Prometheus. The values must equal the packets that were sent. Every expression of the dashboard
// must have a value, and no alert may fire. promtool checks with the values in testdata that each alert can fire.
func TestPrometheus(t *testing.T) {
	if !inside(t) {
		return
	}
	testutil.RequireTool(t, "promtool")
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(scraped), 0o600); err != nil {
		t.Fatal(err)
	}
	mustFloodwall(t, "apply", file)
	h := startDaemon(t)
	waitFor(t, "an answer on 127.0.0.1:9810", func() bool { return reachable("127.0.0.1:9810") })
	p := startPrometheus(t)
	waitFor(t, "the detector", func() bool { return strings.Contains(h.said.String(), "banning who exceeds") }) // it discards older offences
	for _, send := range []struct {
		packet string
		n      int
	}{
		{"udp 198.51.100.1:5 > 192.0.2.1:7", 40}, {"udp 198.51.100.1:5 > 192.0.2.1:0", 3}, {"udp 198.51.100.9:5 > 192.0.2.1:9", 30},
	} {
		if err := testutil.Send("fw1", send.packet, send.n); err != nil {
			t.Fatal(err)
		}
	}
	p.sum(`floodwall_rule_packets_total{rule="port7",stage="xdp",verdict="drop"}`, 40)
	p.sum(`floodwall_check_packets_total{check="port-zero"}`, 3)
	p.sum(`floodwall_packets_total{device="fw0",verdict="drop"}`, 40+3+28)
	p.sum(`floodwall_bans_total{origin="automatic"}`, 1)
	p.sum(`floodwall_set_entries{set="bans"}`, 1)
	p.sum(`floodwall_set_capacity{set="bans"}`, 100)
	p.sum(`floodwall_limit_prefixes{limit="flood"}`, 1)
	p.sum(`floodwall_protection_active{service="web"}`, 0)
	p.sum(`floodwall_policy_generation * floodwall_policy_in_force`, 1)

	p.sum("count_over_time(floodwall_policy_generation[1m]) >= bool 3", 1) // a rate takes two
	for _, e := range expressions(t, "../../contrib/grafana/floodwall.json") {
		found, err := p.values(e)
		if err != nil || len(found) == 0 && !strings.HasPrefix(e, "changes(") {
			t.Errorf("an expression of the dashboard: %s: %v (%v)", e, found, err)
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError, State string }
		}
	}
	active := func() (list []string) {
		if err := p.ask("/api/v1/rules", &rules); err != nil || len(rules.Groups) == 0 {
			return []string{fmt.Sprint("no answer: ", err)}
		}
		for _, r := range rules.Groups[0].Rules {
			if r.Health != "ok" || r.State != "inactive" { // the health is unknown before the first evaluation
				list = append(list, fmt.Sprintf("%s: health %s, state %s: %s", r.Name, r.Health, r.State, r.LastError))
			}
		}
		return list
	}
	var alerts []string
	defer func() {
		if len(alerts) > 0 {
			t.Errorf("alerts: %q", alerts)
		}
	}()
	waitFor(t, "no alert to be active", func() bool {
		alerts = active()
		return len(alerts) == 0
	})
	scrape := h.must(200, readSocket, "/v1/metrics").body
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(scrape)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s\n%s", err, out, scrape)
	}
	for _, args := range [][]string{{"check", "rules", "../../contrib/prometheus/floodwall.rules.yml"}, {"check", "config", "../../contrib/prometheus/prometheus.yml"},
		{"test", "rules", "testdata/prometheus/alerts.yml"}} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	for _, address := range []string{"198.51.100.", "192.0.2."} {
		if strings.Contains(scrape, address) {
			t.Errorf("an address in the figures:\n%s", scrape)
		}
	}
}
