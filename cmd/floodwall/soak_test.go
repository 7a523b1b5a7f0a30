// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
)

// soakPolicy uses all features of a daemon: a fetched list, dynamic sets, samples and the page. URL stands for the address of the list.
const soakPolicy = `devices: [fw0, fx0]
default: pass
sets:
  listed: [198.51.100.0/24]
  feed: {url: "URL", every: 1h}
  bans: {dynamic: true, max: 100000, timeout: 1h}
rules:
  - {name: flood, proto: udp, port: 9, from: $listed, then: drop}
  - {name: fetched, from: $feed, then: drop}
  - {name: banned, from: $bans, then: drop}
daemon: {listen: "127.0.0.1:9810", sample: 1/10}
`

// soak is a daemon under all kinds of load at the same time.
type soak struct {
	*watch
	*sync.WaitGroup
	h      *apiHost
	over   context.Context
	stop   func() // ends the soak early, at the first failure
	events atomic.Uint64
	slow   atomic.Uint64 // the number of late answers
	bans   int           // the number of requested bans
	feeds  int           // the number of fetched lists
	open   *browser      // a browser that has the page open
}

// figures are the values that must not grow. Each is named by its metric, or by one of the names that soak.figure knows.
var figures = []struct {
	metric string
	unit   float64 // the divisor of printed values
	grow   float64 // the allowed growth from the beginning to the end, as a factor
	beside float64 // allowed growth in addition to that, in the printed unit
}{
	{residentMemory, 1 << 20, 1.25, 16},
	{"go_memstats_heap_alloc_bytes", 1 << 20, 1.5, 16},
	{"go_goroutines", 1, 1, 20},
	{"process_open_fds", 1, 1, 20},
	{`floodwall_set_entries{set="bans"}`, 1, 1.3, 1000},
	{pinnedFiles, 1, 1, 4},
	{pageHeap, 1 << 20, 1.5, 4},
}

// mostSoaked is how much memory an installed daemon may have under the soak, in the unit of its row.
const mostSoaked = 60

const (
	residentMemory = "process_resident_memory_bytes"

	pinnedFiles = "maps and programs below /sys/fs/bpf"
	pageHeap    = "bytes of the page's scripts"
)

// TestSoak runs for the time in FLOODWALL_SOAK, for example 1h. It runs a flood, 1,000 bans a second, a list that changes, and a scrape each second.
// It also runs clients of top, of the page and of events, and a Chromium with the page open. Memory, goroutines, files, maps and entries must not
// grow. No packet may pass that the policy drops.
func TestSoak(t *testing.T) {
	text := os.Getenv("FLOODWALL_SOAK")
	if text == "" {
		return
	}
	lasts, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("FLOODWALL_SOAK: %v", err)
	}
	if !inside(t) {
		return
	}
	sh(t, "ip link set lo up")
	var fetched atomic.Uint64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := fetched.Add(1)
		for i := range 2000 {
			fmt.Fprintf(w, "11.%d.%d.0/24\n", (n+uint64(i)/200)%200, i%200)
		}
	}))
	defer server.Close()
	s := &soak{watch: newWatch(t), WaitGroup: new(sync.WaitGroup)}
	s.arrives()
	policy := filepath.Join(t.TempDir(), "soak.yaml")
	if err := os.WriteFile(policy, []byte(strings.ReplaceAll(soakPolicy, "URL", server.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	mustFloodwall(t, "apply", policy)
	s.filtered()
	received, sent := s.received.Load(), s.sent.Load()
	s.h = startInstalled(t)
	waitFor(t, "the page", func() bool { return reachable(pageAddress) })
	s.open = startBrowser(t)
	s.open.size(1440, 900, "light")
	s.open.open(pageAddress)
	s.open.shows("state-word", "In force")
	s.over, s.stop = context.WithTimeout(t.Context(), lasts)
	defer s.stop()
	s.Go(s.ban)
	s.Go(s.fetch)
	s.Go(s.follow)
	s.Go(func() { s.each(time.Second, func(int) { s.look(readSocket, "/v1/top?for=1s") }) })
	s.Go(func() { s.each(5*time.Second, s.page) })
	s.scrape()
	s.Wait()
	s.open.shows("state-word", "In force")
	s.filtered()
	if passed := s.received.Load() - received; passed > 0 {
		t.Errorf("%d packets came in that the policy drops", passed)
	}
	t.Logf("%v: %d packets sent, %d came in; %d bans, %d fetches, %d events, %d answers late", lasts, s.sent.Load()-sent, s.received.Load()-received,
		s.bans, s.feeds, s.events.Load(), s.slow.Load())
}

// each runs an action at an interval until the soak is over. It does not start an action while the previous run continues.
func (s *soak) each(interval time.Duration, do func(n int)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-s.over.Done():
			return
		case <-tick.C:
			do(n)
		}
	}
}

// broken reports a failure and ends the soak.
func (s *soak) broken(format string, args ...any) {
	if s.over.Err() != nil {
		return // the end of the soak interrupts running requests
	}
	s.Errorf(format, args...)
	s.Logf("the daemon says:\n%s", s.h.said)
	s.stop()
}

// look requests a path that must exist, and returns the body. It returns "" if the machine was too slow to answer.
func (s *soak) look(address, path string) (text string) {
	a, err := get(address, path)
	if s.wasSlow(a, err) {
		return ""
	}
	if err != nil || a.status != http.StatusOK {
		s.broken("GET %s: %v, %v", path, a, err)
	}
	return a.body
}

// wasSlow reports whether an answer was late, and counts it. A scrape with the status 500, which lacks a late value, counts as a late answer. On a
// busy machine, rare late answers are no defect.
func (s *soak) wasSlow(a answer, err error) bool {
	slow := err == nil && (a.status == http.StatusServiceUnavailable || strings.Contains(a.body, context.DeadlineExceeded.Error())) || os.IsTimeout(err)
	if slow {
		s.slow.Add(1)
	}
	return slow
}

// page requests the page over TCP, as a browser does.
func (s *soak) page(int) {
	for _, path := range []string{"/", "/v1/status"} {
		response, err := http.Get("http://127.0.0.1:9810" + path)
		if s.wasSlow(answer{}, err) {
			return
		}
		if err != nil {
			s.broken("%v", err)
			return
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK && path != "/" {
			s.broken("GET %s: %s", path, response.Status)
		}
	}
}

// ban bans a thousand addresses each second, for ten seconds. It also unbans half of the addresses of the previous second.
func (s *soak) ban() {
	order := func(n int) (list []string) {
		for i := range 1000 {
			list = append(list, fmt.Sprintf("10.%d.%d.%d", n%200, i/250, i%250+1))
		}
		return list
	}
	s.each(time.Second, func(n int) {
		a, err := post(controlSocket, "/v1/block", operate.BlockOrder{Prefixes: order(n), For: "10s"})
		if s.wasSlow(a, err) {
			return
		}
		if err != nil || a.status != http.StatusOK {
			s.broken("block: %v, %v", a, err)
			return
		}
		s.bans += 1000
		if n == 0 {
			return
		}
		a, err = post(controlSocket, "/v1/unblock", operate.UnblockOrder{Prefixes: order(n - 1)[:500]})
		if !s.wasSlow(a, err) && (err != nil || a.status >= 500) {
			s.broken("unblock: %v, %v", a, err)
		}
	})
}

// fetch makes the daemon fetch the list. The content of the list changes each time.
func (s *soak) fetch() {
	s.each(5*time.Second, func(int) {
		if out, err := floodwall("feeds", "refresh"); err != nil {
			s.broken("feeds refresh: %v\n%s", err, out)
			return
		}
		s.feeds++
	})
}

// follow reads events all the time. The daemon closes the connection of a slow client. follow then connects again.
func (s *soak) follow() {
	for s.over.Err() == nil {
		s.followOnce()
	}
}

func (s *soak) followOnce() {
	request, err := http.NewRequestWithContext(s.over, http.MethodGet, "http://floodwall/v1/events", nil)
	if err != nil {
		s.broken("%v", err)
		return
	}
	c := client(readSocket)
	c.Timeout = 0
	response, err := c.Do(request)
	if err != nil {
		s.broken("events: %v", err)
		return
	}
	defer response.Body.Close()
	for in := bufio.NewReader(response.Body); ; {
		line, err := in.ReadString('\n')
		if strings.HasPrefix(line, "data: ") {
			s.events.Add(1)
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			s.broken("events: %v", err)
			return
		}
	}
}

// scrape reads the metrics each second. After a warm-up, it compares the last third of the values with the first third. During the warm-up, the first
// bans have not expired yet, and caches are filled.
func (s *soak) scrape() {
	s.Helper()
	var rows [][]float64
	s.each(time.Second, func(int) {
		text := s.look(readSocket, "/v1/metrics")
		if text == "" {
			return
		}
		row := make([]float64, len(figures))
		for i, f := range figures {
			row[i] = s.figure(text, f.metric) / f.unit
		}
		rows = append(rows, row)
	})
	if slow := s.slow.Load(); slow > uint64(len(rows)/10) {
		s.Errorf("%d answers did not come in time, beside %d scrapes", slow, len(rows))
	}
	warm := len(rows) / 4
	if warm < 9 {
		s.Errorf("only %d scrapes: it was too short", len(rows))
		return
	}
	third := (len(rows) - warm) / 3
	for i, f := range figures {
		first, last := mean(rows[warm:warm+third], i), mean(rows[len(rows)-third:], i)
		s.Logf("%-36s %8.1f at first, %8.1f at last", f.metric, first, last)
		if first == 0 || last > first*f.grow+f.beside {
			s.Errorf("%s grows from %.1f to %.1f", f.metric, first, last)
		}
		if f.metric == residentMemory && last > mostSoaked {
			s.Errorf("the daemon has %.1f MiB in memory, more than %d", last, mostSoaked)
		}
	}
}

// figure returns the value of an entry of figures. The parameter text is a scrape.
func (s *soak) figure(text, name string) (n float64) {
	switch name {
	case pinnedFiles:
		filepath.WalkDir("/sys/fs/bpf", func(_ string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() { // a directory may disappear while it is read
				n++
			}
			return nil
		})
		return n
	case pageHeap:
		call[struct{}](s.open, "HeapProfiler.collectGarbage", nil)
		return call[struct{ UsedSize float64 }](s.open, "Runtime.getHeapUsage", nil).UsedSize
	}
	return metric(text, name)
}

// metric returns the value in a line of a scrape, or 0 if there is no such line.
func metric(text, name string) float64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return n
		}
	}
	return 0
}

// mean returns the mean of a column.
func mean(rows [][]float64, column int) (m float64) {
	for _, row := range rows {
		m += row[column] / float64(len(rows))
	}
	return m
}
