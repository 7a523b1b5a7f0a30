package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/testutil"
)

// quick is a demonstration that is too short to prove anything.
var quick = Options{Duration: time.Second, Requests: 100}

// TestRun gives a short demonstration. How well the server fares depends on what else this machine does, so that is
// printed only.
func TestRun(t *testing.T) {
	testutil.RequireRoot(t)
	before := world(t)
	var out bytes.Buffer
	s, err := Run(t.Context(), quick, NewViewer(&out, os.Getenv))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s\n%s", s.Text(80), out.String())
	if trouble := s.Trouble(); trouble != nil {
		t.Logf("on this machine, at this time: %v", trouble)
	}
	checkSummary(t, s)
	for i, name := range phaseNames {
		if want := fmt.Sprintf("phase %d of 3: %s\n", i+1, name); !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in the output", want)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("there are control codes in the output, which is not a terminal")
	}
	if diff := cmp.Diff(before, world(t)); diff != "" {
		t.Errorf("what is left (-before +after):\n%s", diff)
	}
}

// TestRunFails has a demonstration fail when it has begun to build its scene.
func TestRunFails(t *testing.T) {
	testutil.RequireRoot(t)
	before := world(t)
	o := quick
	o.List = "/does/not/exist"
	_, err := Run(t.Context(), o, NewViewer(io.Discard, os.Getenv))
	if want := "list of bad addresses: open /does/not/exist: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
	if diff := cmp.Diff(before, world(t)); diff != "" {
		t.Errorf("what is left (-before +after):\n%s", diff)
	}
}

func checkSummary(t *testing.T, s *Summary) {
	t.Helper()
	if len(s.Phases) != phases {
		t.Fatalf("%d phases, want %d", len(s.Phases), phases)
	}
	for i, p := range s.Phases {
		if n := p.Requests.OK + p.Requests.Failed; n != 100 {
			t.Errorf("phase %q: %d requests, want 100", p.Name, n)
		}
		if attacked := p.Traffic.Sent > 0; attacked != (i > quiet) {
			t.Errorf("phase %q: flood of %.0f pps", p.Name, p.Traffic.Sent)
		}
		if filtered := p.Traffic.Dropped > 0; filtered != (i == protected) {
			t.Errorf("phase %q: %.0f pps dropped by Floodwall", p.Name, p.Traffic.Dropped)
		}
	}
	for _, reason := range []string{"listed", "default", "tcp-flags", "reflector-source"} {
		if !slices.ContainsFunc(s.Drops, func(d Drop) bool { return d.Reason == reason }) {
			t.Errorf("nothing was dropped by %s: %v", reason, s.Drops)
		}
	}
	if s.ApplySeconds <= 0 || s.Capacity == nil || s.Rate <= 0 {
		t.Errorf("apply took %g s, capacity %v, rate %g", s.ApplySeconds, s.Capacity, s.Rate)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}

// world is what a demonstration must leave as it was: this process's descriptors of kernel objects and namespaces, the
// devices and the mounts that it sees, and the CPUs it may use.
func world(t *testing.T) map[string]any {
	t.Helper()
	var held []string
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name()))
		if err == nil && (strings.Contains(to, "bpf") || strings.HasPrefix(to, "net:") || to == "/") {
			held = append(held, to)
		}
	}
	devices, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		t.Fatal(err)
	}
	return map[string]any{"held": held, "devices": names, "mounts": string(mounts), "cpus": cpus}
}

func TestTrouble(t *testing.T) {
	for _, tt := range []struct {
		ok   [phases]uint64 // of 1000
		want string
	}{
		{[phases]uint64{1000, 0, 1000}, ""},
		{[phases]uint64{990, 500, 990}, ""},
		{[phases]uint64{989, 0, 1000}, "without any attack only 98.9% of the requests were answered"},
		{[phases]uint64{1000, 501, 1000}, "this machine shrugs the flood off at 1.20 Mpps: 50.1% of the requests were answered without Floodwall"},
		{[phases]uint64{1000, 0, 989}, "with Floodwall only 98.9% of the requests were answered, at a flood of 1.20 Mpps"},
	} {
		got := ""
		s := summaryOf(tt.ok)
		if trouble := s.Trouble(); trouble != nil {
			got = trouble.Error()
			if trouble.Hint() == "" {
				t.Errorf("%v: no hint", tt.ok)
			}
		}
		if got != tt.want {
			t.Errorf("answered %v: trouble %q, want %q", tt.ok, got, tt.want)
		}
		if verdict := strings.Contains(s.Text(80), "Under a flood of"); verdict != (tt.want == "") {
			t.Errorf("answered %v: there is a verdict: %v", tt.ok, verdict)
		}
	}
}

// summaryOf makes a summary of phases with so many requests answered of 1000.
func summaryOf(ok [phases]uint64) *Summary {
	s := &Summary{Rate: 1.2e6}
	for i, n := range ok {
		p := Phase{Name: phaseNames[i]}
		p.Requests.OK, p.Requests.Failed = n, 1000-n
		s.Phases = append(s.Phases, p)
	}
	return s
}

func TestTextWidth(t *testing.T) {
	for _, width := range []int{20, 60, 80, 200} {
		text := summaryOf([phases]uint64{1000, 0, 1000}).Text(width)
		for line := range strings.Lines(text) {
			if n := len(strings.TrimRight(line, "\n")); n > max(width, 60) {
				t.Errorf("for %d columns, a line has %d: %q", width, n, line)
			}
		}
	}
}

func TestCapacityRate(t *testing.T) {
	for _, tt := range []struct{ unprotected, protected, want float64 }{
		{500e3, 4e6, 1.1e6},
		{800e3, 2e6, 800e3},
		{503e3, 4e6, 1.1e6},
		{1, 1, 10e3},
	} {
		c := Capacity{tt.unprotected, tt.protected}
		if got := c.rate(); got != tt.want {
			t.Errorf("%+v: rate %.0f, want %.0f", c, got, tt.want)
		}
	}
}

func TestBadList(t *testing.T) {
	for _, tt := range []struct{ list, want string }{
		{"198.51.100.1\n", "fewer than two IPv4 addresses"},
		{"198.51.100.1\n192.0.2.0/24\n", "lists the demonstration's own addresses"},
		{"nonsense\n", "list.txt:1"},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "list.txt")
		if err := os.WriteFile(file, []byte(tt.list), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := writeScript(dir, file); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("list %q: error %v, want %q", tt.list, err, tt.want)
		}
	}
	if _, err := writeScript(t.TempDir(), "/does/not/exist"); err == nil {
		t.Error("a list that does not exist: no error")
	}
}

// TestMain lets this program be a demonstration, for tests that end one from outside.
func TestMain(m *testing.M) {
	if os.Getenv("FLOODWALL_TEST_DEMO") == "" {
		os.Exit(m.Run())
	}
	var out io.Writer = os.Stderr
	o := quick
	o.Rate = 400_000
	if _, err := Run(context.Background(), o, NewViewer(out, os.Getenv)); err != nil {
		fmt.Fprintln(out, err)
		os.Exit(1)
	}
}
