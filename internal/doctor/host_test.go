// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// captured returns a host that consists only of files, given as a map from path to text. A + at the end of a path makes the file writable.
func captured(files map[string]string) *host {
	root := fstest.MapFS{}
	for path, text := range files {
		mode := fs.FileMode(0o444)
		if plain, writable := strings.CutSuffix(path, "+"); writable {
			path, mode = plain, 0o644
		}
		root[path] = &fstest.MapFile{Data: []byte(text), Mode: mode}
	}
	return &host{
		saved: func() ([]savedRule, error) { return nil, nil },
		root:  root, start: time.Now(), hasDaemonUnit: func() bool { return false },
		tool: func(context.Context, string, ...string) ([]byte, error) { return nil, exec.ErrNotFound },
		rules: func() (*ruleset, error) {
			return newRuleset(chains{}), nil
		},
		devices: func() ([]*device, error) { return nil, nil },
	}
}

// brief returns a line for each finding: severity, id and remedy.
func brief(found ...Finding) (lines []string) {
	for _, f := range found {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s: %s", f.Severity, f.ID, f.Remedy)))
	}
	return lines
}

// same fails the test unless the findings, in the form of brief, are want.
func same(t *testing.T, found []Finding, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, brief(found...)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestConntrackFiles(t *testing.T) {
	const dir = "proc/sys/net/netfilter/nf_conntrack_"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"not loaded", nil, []string{"ok conntrack-table:"}},
		{"empty", map[string]string{dir + "count": "0\n", dir + "max+": "262144\n", dir + "buckets": "262144\n"},
			[]string{"ok conntrack-table:", "ok conntrack-buckets:"}},
		{"three quarters", map[string]string{dir + "count": "75", dir + "max+": "100", dir + "buckets": "100"},
			[]string{"warning conntrack-table: sysctl -w net.netfilter.nf_conntrack_max=200 net.netfilter.nf_conntrack_buckets=200",
				"ok conntrack-buckets:"}},
		{"full, in a container", map[string]string{dir + "count": "100", dir + "max": "100", dir + "buckets": "100"},
			[]string{"problem conntrack-table: in the machine's first network namespace: sysctl -w net.netfilter.nf_conntrack_max=200 " +
				"net.netfilter.nf_conntrack_buckets=200; or let nothing be tracked that need not be: see conntrack-services",
				"ok conntrack-buckets:"}},
		{"no limit", map[string]string{dir + "count": "75", dir + "max+": "0", dir + "buckets": "100"},
			[]string{"ok conntrack-table:", "ok conntrack-buckets:"}},
		{"long chains", map[string]string{dir + "count": "1000", dir + "max+": "8000", dir + "buckets": "500"},
			[]string{"ok conntrack-table:", "warning conntrack-buckets: sysctl -w net.netfilter.nf_conntrack_buckets=8000"}},
		{"chains that may be long", map[string]string{dir + "count": "10", dir + "max+": "8000", dir + "buckets": "500"},
			[]string{"ok conntrack-table:", "note conntrack-buckets: sysctl -w net.netfilter.nf_conntrack_buckets=8000"}},
		{"unreadable", map[string]string{dir + "count": "many", dir + "max": "1", dir + "buckets": "1"},
			[]string{"note conntrack-table:"}},
	} {
		t.Run(tt.name, func(t *testing.T) { same(t, conntrackTable(t.Context(), captured(tt.files)), tt.want...) })
	}
}

// TestConntrackLosses reads a table with a row for each of two CPUs, as Linux 6.18 prints it.
func TestConntrackLosses(t *testing.T) {
	sums, err := sumColumns(`entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart
0003ffff  00000001 00000000 00000000 00000002 00000000 00000000 00000000 00000000 00000005 0000000a 000000ff 00000000  00000000 00000000 00000000 00000003
0003ffff  00000000 00000000 00000000 00000000 00000000 00000000 00000001 00000000 00000000 00000006 00000001 00000000  00000000 00000000 00000000 00000000
`)
	if err != nil || sums["drop"] != 16 || sums["early_drop"] != 256 || sums["insert_failed"] != 5 || sums["search_restart"] != 3 {
		t.Errorf("sums %v, %v", sums, err)
	}
	if _, err := sumColumns("a b\n1 x\n"); err == nil || !strings.HasPrefix(err.Error(), "column b: ") {
		t.Errorf("a column that is no number: %v", err)
	}
	before := map[string]uint64{"drop": 16, "early_drop": 200, "insert_failed": 5}
	var got []Finding
	for _, l := range losses {
		f := l.judge(before, sums)
		f.Remedy = ""
		got = append(got, f)
	}
	same(t, got, "note conntrack-drops:", "warning conntrack-early-drops:", "warning conntrack-insert-failures:")
	if e := got[1].Evidence; !strings.Contains(e, "256 in all, 56 while looking") {
		t.Errorf("evidence %q", e)
	}
	same(t, []Finding{losses[0].judge(nil, nil)}, "ok conntrack-drops:")
}

func TestServices(t *testing.T) {
	tcp, udp := uint8(unix.IPPROTO_TCP), uint8(unix.IPPROTO_UDP)
	c := census{sampled: 10000, loopback: 1000, services: map[sockets.Service]int{{Proto: tcp, Port: 443}: 6000, {Proto: udp, Port: 53}: 2000, {Proto: tcp, Port: 9000}: 100}}
	const lines = "services:\n  - {name: https-tcp, port: tcp/443, track: false}\n  - {name: dns-udp, port: udp/53, track: false}\nuntracked: [loopback]"
	same(t, []Finding{c.judge(tracked{count: 60000, max: 100000})}, "warning conntrack-services: "+lines)
	same(t, []Finding{c.judge(tracked{count: 40000, max: 100000})}, "note conntrack-services: "+lines)
	same(t, []Finding{c.judge(tracked{count: 900, max: 1000})}, "ok conntrack-services:")
	f := c.judge(tracked{count: 60000, max: 100000})
	if _, err := policy.Parse("p.yaml", []byte("devices: [eth0]\ndefault: drop\n"+f.Remedy+"\n")); err != nil {
		t.Errorf("the remedy is no policy: %v", err)
	}
	if !strings.Contains(f.Evidence, "tcp/443 60%, udp/53 20%, loopback 10%") || !strings.Contains(f.Cost, "90% of the table, about 54,000 entries") {
		t.Errorf("%+v", f)
	}
}

func TestSoftnet(t *testing.T) {
	before, err := parseSoftnet(`0030cc52 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
9bff435d 00000007 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000003 00000000 00000000
`)
	if err != nil || len(before) != 2 || before[1] != (cpuCounts{cpu: 3, processed: 0x9bff435d, dropped: 7, squeezed: 1}) {
		t.Fatalf("%+v, %v", before, err)
	}
	old, err := parseSoftnet("00000001 00000002 00000003\n") // as Linux 2.6 prints it
	if err != nil || len(old) != 1 || old[0] != (cpuCounts{processed: 1, dropped: 2, squeezed: 3}) {
		t.Errorf("%+v, %v", old, err)
	}
	for _, wrong := range []string{"1 2\n", "1 2 x\n"} {
		if _, err := parseSoftnet(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
	later := []cpuCounts{before[0], {cpu: 3, processed: before[1].processed + 100000, dropped: 9, squeezed: 12}}
	same(t, []Finding{softnetDrops(before, later, 1000), softnetDrops(before, before, 1000), softnetDrops(before, later, 0)},
		"problem softnet-drops: sysctl -w net.core.netdev_max_backlog=4096",
		"note softnet-drops: sysctl -w net.core.netdev_max_backlog=4096",
		"problem softnet-drops: raise net.core.netdev_max_backlog in the machine's first network namespace")
	same(t, []Finding{softnetSqueezes(before, later), softnetSqueezes(before, before)},
		"warning softnet-squeezes: sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=8000", "ok softnet-squeezes:")
	same(t, []Finding{balance(before, later, 1), balance(before, later, 10)},
		"note receive-balance: more receive queues where the device has them, or receive packet steering: see queues", "ok receive-balance:")
	if f := softnetDrops(before, later, 1000); !strings.Contains(f.Evidence, "9 in all, 2 while looking; cpu3 9") {
		t.Errorf("%+v", f)
	}
}

func TestNetstat(t *testing.T) {
	got, err := parseNetstat(`TcpExt: SyncookiesSent ListenOverflows ListenDrops TCPReqQFullDoCookies
TcpExt: 0 128 130 4
IpExt: InNoRoutes InBcastPkts
IpExt: 7 -1
`)
	want := map[string]uint64{"SyncookiesSent": 0, "ListenOverflows": 128, "ListenDrops": 130, "TCPReqQFullDoCookies": 4, "InNoRoutes": 7, "InBcastPkts": 1<<64 - 1}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	none := map[string]uint64{}
	same(t, []Finding{listenDrops(none, got, 128), listenDrops(got, got, 128), listenDrops(none, none, 4096)},
		"problem listen-drops: sysctl -w net.core.somaxconn=4096", "note listen-drops: sysctl -w net.core.somaxconn=4096", "ok listen-drops:")
	dropped := map[string]uint64{"TCPReqQFullDrop": 3}
	serve := []sockets.Socket{{Service: sockets.Service{Proto: unix.IPPROTO_TCP, Port: 443}}, {Service: sockets.Service{Proto: unix.IPPROTO_UDP, Port: 53}}}
	same(t, []Finding{synQueue(none, got, 128, nil), synQueue(none, got, 4096, serve), synQueue(none, dropped, 0, nil), synQueue(none, none, 0, nil)},
		"warning syn-queue: sysctl -w net.ipv4.tcp_max_syn_backlog=4096",
		"warning syn-queue: `syn: protect` for the services that are flooded, of tcp/443",
		"problem syn-queue: sysctl -w net.ipv4.tcp_syncookies=1", "ok syn-queue:")
}

// TestLate runs three probes: one never ends, one ends with the context, and one lacks permission.
func TestLate(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	hangs := make(chan struct{})
	defer close(hangs)
	found := run(ctx, captured(nil), []probe{
		{"hangs", func(context.Context, *host) []Finding { <-hangs; return nil }},
		{"waits", func(ctx context.Context, _ *host) []Finding {
			<-ctx.Done()
			return []Finding{unseen("waits", ctx.Err())}
		}},
		{"forbidden", func(context.Context, *host) []Finding { return []Finding{unseen("forbidden", fs.ErrPermission)} }},
	})
	same(t, found, "note hangs:", "note waits:", "note forbidden: sudo floodwall doctor")
	if !strings.Contains(found[0].Evidence, "longer than 3s") {
		t.Errorf("%+v", found[0])
	}
}

// overdue reports whether a probe, or a tool that it asks, did not end in its time.
func overdue(f Finding) bool {
	return slices.ContainsFunc([]string{"it took longer than", "no answer within", context.DeadlineExceeded.Error()},
		func(text string) bool { return strings.Contains(f.Evidence, text) })
}

func TestTool(t *testing.T) {
	inTime := func(name string, args ...string) (out []byte, err error) { // on a busy machine a tool may start too late for its limit
		testutil.Eventually(time.Minute, func() bool {
			out, err = runTool(t.Context(), name, args...)
			return err == nil || !strings.Contains(err.Error(), "no answer within")
		})
		return out, err
	}
	if out, err := inTime("echo", "hello"); string(out) != "hello\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := runTool(t.Context(), "no-such-tool"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("no tool: %v", err)
	}
	if _, err := inTime("sh", "-c", "echo what; echo why >&2; exit 3"); err == nil || !strings.Contains(err.Error(), "status 3 why") {
		t.Errorf("a tool that fails: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := runTool(ctx, "sleep", "60"); err == nil || time.Since(start) > 20*time.Second {
		t.Errorf("a tool that hangs: %v after %v", err, time.Since(start))
	}
	if _, err := runTool(t.Context(), "sh", "-c", "head -c 70000000 /dev/zero"); err == nil {
		t.Error("70 MB are read")
	}
}

func TestText(t *testing.T) {
	for word, want := range map[string]string{"eth0.5": "eth0.5", "a b": "'a b'", "x;rm": "'x;rm'", "it's": `'it'\''s'`, "": "''"} {
		if got := wording.Shell(word); got != want {
			t.Errorf("wording.Shell(%q) is %q", word, got)
		}
	}
	if percent(99999, 100000) != 99 || percent(1, 0) != 0 || percent(1<<60, 1<<60) != 100 {
		t.Error("percent")
	}
}

// TestLoose checks that the finding warns of the remedy's effect on established connections.
func TestLoose(t *testing.T) {
	const dir = "proc/sys/net/netfilter/nf_conntrack_"
	found := conntrackLoose(t.Context(), captured(map[string]string{
		dir + "tcp_loose+": "1\n", dir + "count": "5\n", dir + "max+": "100\n", dir + "buckets": "100\n",
	}))
	same(t, found, "note conntrack-loose: sysctl -w net.netfilter.nf_conntrack_tcp_loose=0")
	if !strings.Contains(found[0].Cost, "SSH session opened before tracking began, becomes `invalid`") {
		t.Errorf("%+v", found[0])
	}
}
