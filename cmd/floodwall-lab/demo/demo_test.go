// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/test/testutil"
)

// quick is a demonstration that is too short to prove anything.
var quick = Options{Duration: time.Second, Requests: 100}

// program returns the path of floodwall. It and the other programs beside it are built once.
func program(t *testing.T) string {
	t.Helper()
	file, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

var buildDir string // removed by TestMain

var built = sync.OnceValues(func() (string, error) {
	build := exec.Command("scripts/build", "test", buildDir)
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v\n%s", err, out)
	}
	return filepath.Join(buildDir, "floodwall"), nil
})

// TestRun runs a short demonstration. The service of the server depends on the load of this machine; it is only printed. The fate of the packets does
// not, and is tested.
func TestRun(t *testing.T) {
	testutil.RequireRoot(t)
	before := world(t)
	var out bytes.Buffer
	o := quick
	o.Program, o.Report = program(t), filepath.Join(t.TempDir(), "report")
	o.Done = func(_ context.Context, s *Summary) error {
		checkPage(t, s, out.String())
		return nil
	}
	s, err := Run(t.Context(), o, NewViewer(&out, os.Getenv))
	if err != nil {
		t.Fatal(err)
	}
	checkReport(t, s)
	t.Logf("%s\n%s", s.Text(80), out.String())
	if trouble := s.Trouble(); trouble != nil {
		t.Error(trouble)
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

// TestFloodwallFails runs demonstrations with wrong policies. Each must be reported as a failure of Floodwall, by the kernel's handling of real
// packets.
func TestFloodwallFails(t *testing.T) {
	testutil.RequireRoot(t)
	devices := "devices: [" + floodDevice + ", " + clientsDevice + "]\n"
	for _, tt := range []struct{ name, policy, want string }{
		{"passes a part of the flood", devices + "default: pass\nchecks: strict\nrules: [{name: tcp, proto: tcp, port: 1024-65535, then: drop}]\n",
			`^Floodwall passed [1-9][0-9,]* of [1-9][0-9,]* packets of the flood, of which the policy forbids all$`},
		{"drops the clients", devices + "default: drop\nchecks: strict\n",
			`^Floodwall dropped [1-9][0-9,]* of [1-9][0-9,]* packets of the clients, of which the policy allows all$`},
		{"cannot be applied", "devices: [elsewhere]\ndefault: drop\n", `elsewhere`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := quick
			o.Policy, o.Rate, o.Requests = tt.policy, 200_000, 20
			s, err := Run(t.Context(), o, NewViewer(io.Discard, os.Getenv))
			if err == nil {
				if trouble := s.Trouble(); trouble != nil {
					err = trouble
				}
			}
			if err == nil || !regexp.MustCompile(tt.want).MatchString(err.Error()) {
				t.Fatalf("error %v, want one like %q", err, tt.want)
			}
			if s != nil && strings.Contains(s.Text(80), "The driver dropped all") {
				t.Errorf("the summary says that all is well:\n%s", s.Text(80))
			}
		})
	}
}

// TestRunFails makes a demonstration fail while it builds its scene.
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

// checkPage fetches the page from the printed address, and everything that the page loads, while the demonstration runs.
func checkPage(t *testing.T, s *Summary, printed string) {
	t.Helper()
	address := regexp.MustCompile(`(?m)^the daemon's page, until the end: (http://127\.0\.0\.1:[0-9]+/)$`).FindStringSubmatch(printed)
	if address == nil || address[1] != s.Page {
		t.Fatalf("address of the page %q, printed:\n%s", s.Page, printed)
	}
	for _, tt := range []struct {
		path, host string
		status     int
		want       string
	}{
		{"", "", 200, "<title>Floodwall</title>"},
		{"v1/health", "", 200, `"in_force"`},
		{"v1/rules", "", 200, `"listed"`},
		{"v1/attacks", "", 200, s.Attack.ID},
		{"", "evil.example", 421, ""},
		{"v1/block", "", 405, ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.Page+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = tt.host
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(got.Body)
		got.Body.Close()
		if err != nil || got.StatusCode != tt.status || !strings.Contains(string(text), tt.want) {
			t.Errorf("GET /%s of host %q: %s, %v: want %d and %q:\n%s", tt.path, tt.host, got.Status, err, tt.status, tt.want, text)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// checkReport checks the files of the attack, and that they have the printed figures.
func checkReport(t *testing.T, s *Summary) {
	t.Helper()
	r := s.Attack
	html, err := os.ReadFile(s.Report)
	if err != nil {
		t.Fatal(err)
	}
	text := s.Text(80)
	for _, figure := range []string{r.ID, wording.Rate(r.Peak.Packets) + " packets/s", wording.Count(r.Dropped.Packets), "<td>listed</td>", r.Vectors[0].Name} {
		if !strings.Contains(string(html), figure) {
			t.Errorf("no %q in the report", figure)
		}
	}
	for _, figure := range []string{wording.Count(r.Dropped.Packets), " by listed", r.Vectors[0].Name, s.Report, s.Packets, mpps(r.Peak.Packets)} {
		if !strings.Contains(text, figure) {
			t.Errorf("no %q in the summary", figure)
		}
	}
	// The report lacks the first second or two after the policy is applied, as the daemon compares two readings of the counters.
	if r.Dropped.Packets == 0 || r.Dropped.Packets > s.Fate.Dropped || r.Peak.Packets > 2*s.Capacity.Protected {
		t.Errorf("dropped %d, of %d by the driver; peak %.0f packets/s of at most %.0f", r.Dropped.Packets, s.Fate.Dropped, r.Peak.Packets, s.Capacity.Protected)
	}
	packets, err := sample.OpenFile(s.Packets)
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	if _, err := packets.Read(); err != nil {
		t.Error(err)
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
	f := s.Fate
	if f.Flood.Arrived == 0 || f.Flood.Dropped != f.Flood.Arrived || f.Clients.Arrived < 300 || f.Clients.Passed != f.Clients.Arrived {
		t.Errorf("fate of the packets: %+v", f)
	}
	for _, reason := range []string{"listed", "default", "tcp-flags", "reflector-source"} {
		if !slices.ContainsFunc(s.Drops, func(d Drop) bool { return d.Reason == reason }) {
			t.Errorf("nothing was dropped by %s: %v", reason, s.Drops)
		}
	}
	var modes []datapath.Mode
	for _, download := range s.Downloads {
		modes = append(modes, download.Mode)
	}
	if want := []datapath.Mode{"", datapath.TC, datapath.Native, datapath.TC}; !slices.Equal(modes, want) {
		t.Errorf("modes at the downloads: %q, want %q", modes, want)
	}
	if text := s.Text(80); !regexp.MustCompile(`(?m)^while a flood lasts +[0-9.]+ +native +[0-9.]+%$`).MatchString(text) {
		t.Errorf("no line of the download in a flood in\n%s", text)
	}
	if s.ApplySeconds <= 0 || s.Capacity == nil || s.Rate <= 0 {
		t.Errorf("apply took %g s, capacity %v, rate %g", s.ApplySeconds, s.Capacity, s.Rate)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}

// world returns the state that a demonstration must leave unchanged: this process's descriptors of kernel objects and namespaces, the devices and the
// mounts that it sees, and its allowed CPUs.
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
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	mounts := slices.DeleteFunc(strings.Split(string(table), "\n"), func(line string) bool {
		return strings.Contains(line, " "+os.TempDir()+"/Test") // of another package's test
	})
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		t.Fatal(err)
	}
	return map[string]any{"held": held, "devices": names, "mounts": mounts, "cpus": cpus}
}

func TestTrouble(t *testing.T) {
	all := [phases]uint64{1000, 0, 1000}
	fine := Fate{Flood: Packets{5000, 5000, 0}, Clients: Packets{2000, 0, 2000}, Dropped: 6000, Counted: 6000}
	busy := func(s *Summary) { s.Phases[protected].Traffic.Disturbed = 0.3 }
	stays := func(s *Summary) {
		s.Downloads = []Download{{Name: "after it", Mode: datapath.Native, expected: datapath.TC}}
	}
	lost := func(s *Summary) { s.Phases[protected].Traffic.Sent, s.Phases[protected].Traffic.Lost = 1e6, 2e5 }
	for _, tt := range []struct {
		name    string
		ok      [phases]uint64 // of 1000
		change  func(*Summary)
		trouble string
		remark  string
	}{
		{"all is well", all, nil, "", ""},
		{"little harm", [phases]uint64{1000, 501, 1000}, nil, "", "The flood did this server little harm without a firewall"},
		{"busy from the beginning", [phases]uint64{800, 0, 700}, nil, "", "Without any attack only 80.0% of the requests were answered"},
		{"busy in the end", [phases]uint64{1000, 10, 10}, busy, "", "With Floodwall 99.0% of the requests failed, though it dropped no packet of theirs: other work had the CPU for 30.0%"},
		{"a full queue", all, lost, "", "Of the flood, 20.0% were lost in a full queue before Floodwall: that is this machine, not Floodwall"},
		{"nothing arrived", all, func(s *Summary) { s.Fate.Flood = Packets{}; s.Fate.Dropped, s.Fate.Counted = 0, 0 }, "", "No packet of the flood arrived"},
		{"the clients get nothing", [phases]uint64{1000, 10, 10}, nil, "the server answered 1.0% of the requests with Floodwall, and 1.0% without, at a flood of 1.20 Mpps", ""},
		{"a packet passed", all, func(s *Summary) { s.Fate.Flood = Packets{5000, 4999, 1} }, "Floodwall passed 1 of 5,000 packets of the flood, of which the policy forbids all", ""},
		{"a client's packet dropped", all, func(s *Summary) { s.Fate.Clients = Packets{2000, 1, 1999} }, "Floodwall dropped 1 of 2,000 packets of the clients, of which the policy allows all", ""},
		{"wrong counters", all, func(s *Summary) { s.Fate.Counted-- }, "Floodwall counted 5,999 dropped packets, and the driver dropped 6,000", ""},
		{"a program that does not move", all, stays, "after it, the program on the link of the download was not in mode tc within 1m0s", ""},
		{"a program that does not move on a busy machine", all, func(s *Summary) { stays(s); busy(s) }, "",
			"after it, the program on the link of the download was not in mode tc within 1m0s: this machine was too busy."},
		{"a passed packet on a busy machine", [phases]uint64{10, 0, 0}, func(s *Summary) { s.Fate.Flood = Packets{5000, 4999, 1}; busy(s) },
			"Floodwall passed 1 of 5,000 packets of the flood, of which the policy forbids all", ""},
	} {
		s := summaryOf(tt.ok)
		s.Fate = fine
		if tt.change != nil {
			tt.change(s)
		}
		got := ""
		if trouble := s.Trouble(); trouble != nil {
			got = trouble.Error()
			if trouble.Hint() == "" {
				t.Errorf("%s: no hint", tt.name)
			}
		}
		if got != tt.trouble {
			t.Errorf("%s: trouble %q, want %q", tt.name, got, tt.trouble)
		}
		if verdict := strings.Contains(s.Text(80), "Under a flood of"); verdict != (tt.trouble == "") {
			t.Errorf("%s: there is a verdict: %v", tt.name, verdict)
		}
		if remarks := s.Remarks(); tt.trouble == "" && (!strings.Contains(remarks, tt.remark) || tt.remark == "" && remarks != "") {
			t.Errorf("%s: remarks %q, want %q", tt.name, remarks, tt.remark)
		}
	}
}

// summaryOf makes a summary of phases. ok is the number of answered requests of 1000 in each.
func summaryOf(ok [phases]uint64) *Summary {
	s := &Summary{Rate: 1.2e6}
	for i, n := range ok {
		p := Phase{Name: phaseNames[i]}
		p.Requests.OK, p.Requests.Failed = n, 1000-n
		s.Phases = append(s.Phases, p)
	}
	return s
}

// TestSums checks the sums of dropped packets that a reader can compare. The text must explain the difference between each sum and the previous one.
func TestSums(t *testing.T) {
	s := summaryOf([phases]uint64{1000, 0, 1000})
	s.Drops = []Drop{{"listed", 5000}, {"default", 1500}}
	s.Fate = Fate{Flood: Packets{6000, 6000, 0}, Clients: Packets{2000, 0, 2000}, Dropped: 6500, Counted: 6500}
	s.Attack = &attack.Report{ID: "20260102-030405", Dropped: operate.Amount{Packets: 5900}}
	flat := strings.Join(strings.Fields(s.Text(80)), " ")
	for _, want := range []string{
		"Together 6,500 packets: 500 while the command still ran, and 6,000 after it had ended.",
		"The daemon's report has 5,900, as it counts whole seconds of the attack.",
		"The driver dropped all 6,000 packets of the flood that arrived",
	} {
		if !strings.Contains(flat, want) {
			t.Errorf("want %q in\n%s", want, flat)
		}
	}
	s.Drops, s.Attack.Dropped.Packets = []Drop{{"listed", 6000}}, 6000
	if flat = strings.Join(strings.Fields(s.Text(80)), " "); !strings.Contains(flat, "Together 6,000 packets. ") {
		t.Errorf("equal sums: %s", flat)
	}
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
		{500e3, 4e6, 1.5e6},
		{800e3, 2e6, 1e6},
		{503e3, 4e6, 1.5e6},
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
		{"198.51.100.1\n192.0.2.0/24\n", "lists addresses of the demonstration's own hosts"},
		{"nonsense\n", "list.txt:1"},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "list.txt")
		if err := os.WriteFile(file, []byte(tt.list), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := writeScript(dir, Options{List: file}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("list %q: error %v, want %q", tt.list, err, tt.want)
		}
	}
	if _, err := writeScript(t.TempDir(), Options{List: "/does/not/exist"}); err == nil {
		t.Error("a list that does not exist: no error")
	}
}

// TestMain lets this program run as a demonstration, for tests that end one from outside.
func TestMain(m *testing.M) {
	lab.Roles(nil)
	if os.Getenv("FLOODWALL_TEST_STAY") != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		Stay(ctx, os.Stdin, os.Stdout, "http://127.0.0.1:9810/", time.Minute)
		fmt.Println("gone", ctx.Err())
		stop()
		return
	}
	if os.Getenv("FLOODWALL_TEST_DEMO") == "" {
		os.Exit(runTests(m))
	}
	var out io.Writer = os.Stderr
	o := quick
	o.Rate, o.Program = 400_000, os.Getenv("FLOODWALL_TEST_DEMO")
	if _, err := Run(context.Background(), o, NewViewer(out, os.Getenv)); err != nil {
		fmt.Fprintln(out, err)
		os.Exit(1)
	}
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "floodwall-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	buildDir = dir
	return m.Run()
}

// TestSlowFlood prepares floods of all rates that the calibration of a machine may choose: on a busy one, it may choose 10,000 packets a second.
func TestSlowFlood(t *testing.T) {
	testutil.RequireRoot(t)
	l, err := lab.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := newScene(l, quick)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for _, rate := range []float64{0, 10_000, lab.SmoothRate - 1, lab.SmoothRate} {
		if _, err := s.newFlood(rate); err != nil {
			t.Errorf("a flood of %.0f packets a second: %v", rate, err)
		}
	}
}
