// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// tiny returns the options of the shortest run of every experiment.
func tiny(t *testing.T) rig.Options {
	file := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(file, []byte("1.2.3.4\n5.6.0.0/16\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return rig.Options{Quick: true, Rounds: 1, Window: 20 * time.Millisecond, Phase: 300 * time.Millisecond, Routes: 1000, List: file, Find: findBuilt}
}

// wantRows are the results that must be there, by experiment. Where rows can be chosen, a short test run measures only these. Results of tools are
// empty if the tool is not installed.
var wantRows = map[string][]string{
	"drop": {
		"drop/empty", "drop/touch", "drop/least", "drop/floodwall/rules=0", "drop/floodwall/rules=10000/off", "drop/iptables/filter",
		"drop/floodwall/rules=20/strict", "drop/floodwall/rules=500/off/listed", "drop/floodwall/rules=20/off/ipv6",
		"drop/floodwall/rules=20/off/vlan", "drop/floodwall/limit", "drop/floodwall/ack", "drop/floodwall/syn",
		"drop/nft/ingress/rules=500", "drop/tc-drop", "drop/floodwall/tc/rules=20/off", "drop/bpfilter", "drop/one-core/empty",
		"drop/one-core/floodwall/rules=20",
	},
	"sets": {
		"sets/least", "sets/list/floodwall/listed", "sets/list/floodwall/unlisted", "sets/list/bpf-hash",
		"sets/list/bpf-lpm/listed", "sets/one-core/list/floodwall/listed", "sets/list/ipset/unlisted", "sets/list/nft/raw/listed",
	},
	"exchange": {
		"exchange/list/floodwall/xdp/quiet", "exchange/list/floodwall/xdp/exchange", "exchange/list/floodwall/xdp/unload",
		"exchange/list/floodwall/iptables/exchange", "exchange/list/bpf-lpm/free",
	},
	"blocklist": {
		"blocklist/n=0/no-firewall", "blocklist/list/no-firewall/again", "blocklist/list/iptables", "blocklist/list/ipset",
		"blocklist/list/nft", "blocklist/n=0/floodwall", "blocklist/list/floodwall",
	},
	"cost": {
		"cost/empty", "cost/pass", "cost/accept", "cost/iptables/accept/tracked", "cost/iptables/raw", "cost/iptables/filter",
		"cost/iptables/set/n=265000", "cost/iptables/string/kmp", "cost/iptables/hashlimit", "cost/floodwall/xdp/raw",
		"cost/floodwall/nftables/raw/rules=5", "cost/floodwall/iptables/set/n=65000", "cost/floodwall/xdp/accept/untracked",
		"cost/floodwall/xdp/hashlimit", "cost/floodwall/iptables/string/n=64", "cost/floodwall/nftables/string/bm",
		"cost/one-core/iptables/raw",
	},
	"pass": {
		"pass/host/open", "pass/host/tc-pass", "pass/host/floodwall/tc/reply", "pass/host/floodwall/nftables/service", "pass/out/floodwall/xdp", "pass/untuned/to-server/open", "pass/untuned/to-server/tc-pass",
		"pass/untuned/to-server/floodwall/xdp/native", "pass/untuned/to-client/floodwall/xdp/generic", "pass/untuned/to-server/floodwall/xdp/tc", "pass/untuned/to-server/nft/conntrack",
	},
	"calm": {"calm/open", "calm/flooded/rest", "calm/flooded/begins/slow", "calm/flooded/after"},
	"limit": {
		"limit/floodwall/xdp/random", "limit/iptables/spread", "limit/nft/repeated", "limit/one-core/bpf-lru/spread",
		"limit/passes/floodwall/nftables/repeated", "limit/passes/bpf-lru/random",
	},
	"payload": {
		"payload/iptables/string/kmp/n=64", "payload/floodwall/xdp/string/n=64", "payload/floodwall/iptables/string/n=1",
		"payload/iptables/u32", "payload/nft/raw/fixed", "payload/one-core/floodwall/nftables/fixed",
	},
	"placement": {
		"placement/drop/empty", "placement/drop/nft/ingress", "placement/drop/iptables/filter", "placement/drop/floodwall/nftables/raw",
		"placement/forward/no-rule", "placement/forward/floodwall/xdp", "placement/dropped=0.01%/iptables/raw",
		"placement/dropped=100%/floodwall/nftables/filter", "placement/move/begin", "placement/move/end",
	},
	"dns": {
		"dns/quiet/nothing", "dns/random/unbound", "dns/random/floodwall", "dns/victim/nothing", "dns/victim/floodwall", "dns/names/nothing", "dns/names/nft",
		"dns/names/floodwall",
	},
	"udp": {
		"udp/quiet/nothing", "udp/busy/floodwall/off", "udp/busy/floodwall/generic", "udp/flood/nft", "udp/flood/hashlimit",
		"udp/flood/floodwall/wireguard", "udp/flood/floodwall/quic",
	},
	"detect": {"detect/honest/crowd", "detect/attack/ntp"},
	"conntrack": {
		"conntrack/no-firewall", "conntrack/nft/full", "conntrack/nft/notrack", "conntrack/floodwall/auto",
		"conntrack/floodwall/nftables",
	},
	"synproxy": {
		"synproxy/syn/xdp-tx", "synproxy/ack/xdp-drop", "synproxy/syn/syncookies=1", "synproxy/ack/synproxy/host",
		"synproxy/syn/floodwall/host", "synproxy/ack/floodwall/router", "synproxy/clients/syncookies=2/quiet",
		"synproxy/clients/synproxy/router/syn=1Mpps", "synproxy/clients/floodwall/host/ack=1Mpps",
		"synproxy/bulk/to-server/xdp-pass/host", "synproxy/bulk/to-client/floodwall/router",
		"synproxy/churn/floodwall-off/router/20", "synproxy/churn/floodwall-always/router/20",
	},
	"scale": {"scale/least/cpus=1", "scale/drop/cpus=2", "scale/limit-within/cpus=2", "scale/syn/cpus=2"},
	"program": {
		"program/empty/packet=udp4", "program/floodwall/checks=strict/packet=ext6", "program/floodwall/rules=10000/packet=banned",
		"program/floodwall/bpfilter/rules=2048/packet=last", "program/bpfilter/rules=2048", "program/floodwall/syn=off/packet=segment4", "program/floodwall/syn=always/packet=stray6",
	},
}

// rows matches the wanted results in a table of packet rates. The table of one core has the same rows as the other table, and as the table of the
// packets that a limit passes.
func rows(want []string) *regexp.Regexp {
	names := make([]string, len(want))
	for i, name := range want {
		_, row, _ := strings.Cut(name, "/")
		names[i] = regexp.QuoteMeta(strings.TrimPrefix(strings.TrimPrefix(row, "one-core/"), "passes/"))
	}
	return regexp.MustCompile("^(" + strings.Join(names, "|") + ")$")
}

// lacking are the endings of the names of results without figures.
var lacking = []string{
	"/bpfilter", "/bpf-hash", "/bpf-hash/fill", "/bpf-hash/free", "floodwall/string/kmp", "floodwall/nftables/string/bm",
	"floodwall/nftables/string/n=64",
}

func TestExperiments(t *testing.T) {
	testutil.RequireRoot(t)
	for _, e := range Experiments {
		t.Run(e.Name, func(t *testing.T) {
			for _, tool := range []string{"iptables-legacy", "nft", "ipset", "nginx", "unbound", "dnsperf"} {
				testutil.RequireTool(t, tool)
			}
			o, temp := tiny(t), t.TempDir()
			if !testutil.Long() {
				o.Rows = rows(wantRows[e.Name])
			}
			t.Setenv("TMPDIR", temp)
			before := look(t)
			r, err := Run(t.Context(), []string{e.Name}, o)
			if err != nil {
				t.Fatal(err)
			}
			checkReport(t, r, wantRows[e.Name])
			// The test must not wait here: after a while the garbage collector would close a program that nobody closed.
			if left := before.leftovers(t, 0); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if files, err := os.ReadDir(temp); err != nil || len(files) > 0 {
				t.Errorf("left behind: %v, %v", files, err)
			}
		})
	}
}

// checkReport checks the shape, not the figures: they say nothing on a machine that runs tests.
func checkReport(t *testing.T, r *report.Report, want []string) {
	t.Helper()
	o := r.Experiments[0]
	var names []string
	for _, res := range o.Results {
		names = append(names, res.Name)
		empty := slices.ContainsFunc(lacking, func(end string) bool { return strings.HasSuffix(res.Name, end) }) || strings.HasPrefix(res.Name, "program/bpfilter/")
		// On a disturbed machine it can happen that no packet arrives in such a short time, but then the note reports it. Also, the costs by which a
		// rule moves may be almost equal. Captures of real attacks are not on every machine.
		excused := strings.HasPrefix(res.Note, "its packets") || strings.HasPrefix(res.Note, "nothing arrived") || strings.HasPrefix(res.Note, "not within")
		if (len(res.Metrics) == 0) != empty && !excused || empty && res.Note == "" {
			t.Errorf("%s: %d metrics, note %q", res.Name, len(res.Metrics), res.Note)
		}
	}
	for _, name := range want {
		if !slices.Contains(names, name) {
			t.Errorf("no result %s among\n%s", name, strings.Join(names, "\n"))
		}
	}
	for _, table := range o.Tables {
		for _, row := range table.Rows {
			if len(row) != len(table.Head) {
				t.Errorf("%s: row %q has %d cells, want %d", table.Title, row, len(row), len(table.Head))
			}
		}
	}
	checkFiles(t, r)
}

func checkFiles(t *testing.T, r *report.Report) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bench", "now")
	page := func(w io.Writer, r *report.Report) error { return r.WriteTables(w, false) } // the page has its own tests
	if err := r.Save(dir, page); err != nil {
		t.Fatal(err)
	}
	benchmarks := ""
	if slices.ContainsFunc(r.Experiments[0].Results, func(res lab.Result) bool { return len(res.Metrics) > 0 }) { // there are none if nothing arrived
		benchmarks = "BenchmarkFloodwall/"
	}
	for file, part := range map[string]string{
		"report.json": `"kernel": "` + r.Machine.Kernel, "bench.txt": benchmarks, "tables.md": r.Experiments[0].Tables[0].Title,
		"report.html": r.Experiments[0].Tables[0].Title,
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), part) {
			t.Errorf("%s does not contain %q: %v", file, part, err)
		}
	}
}

// A run that is stopped must end at once, report its figures so far, and leave nothing behind.
func TestStoppedRun(t *testing.T) {
	testutil.RequireRoot(t)
	before := look(t)
	o := tiny(t)
	o.Rounds, o.Window = 1000, time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan time.Time, 1)
	earlier := sources() // threads of earlier tests, which end after some time
	go func() {
		testutil.Eventually(time.Minute, func() bool {
			return slices.ContainsFunc(sources(), func(id int) bool { return !slices.Contains(earlier, id) })
		})
		stopped <- time.Now()
		cancel()
	}()
	r, err := Run(ctx, []string{"sets"}, o)
	took := time.Since(<-stopped)
	if !errors.Is(err, context.Canceled) || r == nil || len(r.Experiments) != 1 {
		t.Fatalf("report %v, %v; want a report and %v", r, err, context.Canceled)
	}
	if took > 20*time.Second { // a window takes a minute
		t.Errorf("it went on for %v", took)
	}
	checkFiles(t, r)
	if left := before.leftovers(t, time.Minute); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// sources returns the threads of this process with a priority above ordinary threads, as the threads of a source have.
func sources() (ids []int) {
	tasks, _ := filepath.Glob("/proc/self/task/*") // the pattern is valid
	for _, task := range tasks {
		id, _ := strconv.Atoi(filepath.Base(task))
		attributes, err := unix.SchedGetAttr(id, 0) // fails if the thread has just ended
		if err == nil && attributes.Policy == unix.SCHED_RR {
			ids = append(ids, id)
		}
	}
	return ids
}

func TestUnknown(t *testing.T) {
	if got := Unknown([]string{"drop", "drip"}); got != "drip" {
		t.Errorf("%q, want drip", got)
	}
	if got := Unknown([]string{"sets", "program", "drop"}); got != "" {
		t.Errorf("%q, want none", got)
	}
	if _, err := Run(t.Context(), []string{"drip"}, rig.Options{}); err == nil {
		t.Error("an unknown experiment runs")
	}
}

// scene is all that a bench could leave behind. Descriptors of this process hold everything that a bench makes in the kernel: namespaces with their
// devices and threads, programs with their maps and links, and the file system of the pins. Names of threads would also find those of other benches
// on the machine.
type scene struct {
	descriptors []string // by the kind of file
	devices     []string // in the namespace of this process
	children    []string // processes that this one has started
}

func look(t *testing.T) (s scene) {
	t.Helper()
	paths, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		// That descriptor listed the directory, or it is of NATS, which reads its own process's use each second (server/pse).
		if to, err := os.Readlink(path); err == nil && to != fmt.Sprintf("/proc/%d/stat", os.Getpid()) {
			s.descriptors = append(s.descriptors, to)
		}
	}
	devices, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		s.devices = append(s.devices, d.Name)
	}
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, path := range tasks {
		children, _ := os.ReadFile(path) // fails if the thread has just ended
		s.children = append(s.children, strings.Fields(string(children))...)
	}
	return s
}

// leftovers returns the additions since before that are still there after the time wait.
func (s scene) leftovers(t *testing.T, wait time.Duration) (left []string) {
	t.Helper()
	for end := time.Now().Add(wait); ; time.Sleep(100 * time.Millisecond) {
		now := look(t)
		left = added(s.descriptors, now.descriptors)
		left = append(left, added(s.devices, now.devices)...)
		left = append(left, added(s.children, now.children)...)
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// added lists the entries that after has more often than before.
func added(before, after []string) (more []string) {
	count := map[string]int{}
	for _, name := range before {
		count[name]++
	}
	for _, name := range after {
		if count[name]--; count[name] < 0 {
			more = append(more, name)
		}
	}
	return more
}
