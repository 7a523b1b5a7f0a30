// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/pin"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestDemoFleet runs a short fleet demonstration to its end, and ends other demonstrations by signals. The number of answered requests and the time
// until bans take effect depend on the load of the machine, but the verdicts on packets do not. No demonstration may leave anything behind.
func TestDemoFleet(t *testing.T) {
	testutil.RequireRoot(t)
	t.Parallel()
	for _, tt := range []struct {
		when   string // the line of its log at which it is ended; "": it ends by itself
		signal unix.Signal
		long   bool
	}{
		{"", 0, false},
		{"web-1$ floodwall-bgp announce", unix.SIGINT, false},
		{"attack: ", unix.SIGINT, true},
		{"reflector$ bird", unix.SIGKILL, true},
		{"line full: ", unix.SIGTERM, true},
		{"router drops: ", unix.SIGKILL, true},
		{"web-1$ floodwall-bgp withdraw", unix.SIGKILL, true},
		{"web-2$ floodwall daemon", unix.SIGKILL, false},
		{"hub$ floodwall-hub run", unix.SIGTERM, true},
		{"web-1$ floodwall apply", unix.SIGINT, true},
		{"web-1$ floodwall join", unix.SIGKILL, true},
		{"no attack: ", unix.SIGTERM, true},
		{"attack: ", unix.SIGKILL, true},
		{"hub$ floodwall-hub unban", unix.SIGINT, true},
		{"afterwards: ", unix.SIGKILL, true},
	} {
		if tt.long && !testutil.Long() {
			continue
		}
		if t.Run(fmt.Sprintf("%v at %q", tt.signal, tt.when), func(t *testing.T) { testDemoFleet(t, tt.when, tt.signal) }); t.Failed() {
			return
		}
	}
}

func testDemoFleet(t *testing.T, when string, signal unix.Signal) {
	threads := uplinks(t)
	demo := exec.Command(program(t), "demo", "--fleet", "--duration", "1s", "--json")
	var out bytes.Buffer
	demo.Stdout = &out
	log, err := demo.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	defer demo.Process.Kill()
	var said []string
	var made []demoObject
	for lines := bufio.NewScanner(log); lines.Scan(); {
		said = append(said, lines.Text())
		if strings.HasPrefix(lines.Text(), "web-3$ floodwall daemon") || when != "" && strings.HasPrefix(lines.Text(), when) {
			made = append(made, demoObjects(t, demo.Process.Pid)...)
		}
		if when != "" && strings.HasPrefix(lines.Text(), when) {
			if err := demo.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			when = "never again"
		}
	}
	err = demo.Wait()
	if (err == nil) != (when == "") {
		t.Fatalf("it ended with %v, and said\n%s", err, strings.Join(said, "\n"))
	}
	if when == "" {
		checkDemoFleet(t, out.Bytes())
	}
	if len(made) < 3 {
		t.Errorf("found only %v of it", made)
	}
	if !testutil.Eventually(3*time.Minute, func() bool {
		made = slices.DeleteFunc(made, func(o demoObject) bool { return !o.exists() })
		return len(made) == 0 && len(uplinks(t)) <= len(threads)
	}) {
		t.Fatalf("left behind: %v, %v", made, uplinks(t))
	}
}

func checkDemoFleet(t *testing.T, out []byte) {
	t.Helper()
	var s FleetSummary
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", s.Text())
	if trouble := s.Trouble(); trouble != nil {
		t.Error(trouble)
	}
	if len(s.Phases) != 5 {
		t.Fatalf("%d phases", len(s.Phases))
	}
	quiet, attack, lifted := s.Phases[0], s.Phases[1], s.Phases[len(s.Phases)-1]
	for i, n := range attack.Nodes {
		if n.Banned == 0 || s.AfterBan[i].Reached > 0 || s.AfterBan[i].Sent == 0 || i > 0 && n.Reached > 0 {
			t.Errorf("%s under attack: %+v; after the bans %+v", n.Name, n.FleetPackets, s.AfterBan[i])
		}
		if l := lifted.Nodes[i]; l.Reached == 0 || l.Banned > 0 {
			t.Errorf("%s after the bans were lifted: %+v", l.Name, l.FleetPackets)
		}
		if q := quiet.Nodes[i]; q.Requests.OK == 0 || q.FleetPackets != (FleetPackets{}) {
			t.Errorf("%s without an attack: %+v", q.Name, q)
		}
	}
	full, router := s.Phases[2].Nodes[0], s.Phases[3].Nodes[0]
	if full.Line == 0 || full.Mirror == 0 || full.Router > 0 || full.Reached > 0 {
		t.Errorf("a flood that the line cannot carry: %+v", full)
	}
	if router.Router == 0 || router.Mirror+router.Line > router.Router || router.Reached > 0 || s.Times.Upstream <= 0 || s.Times.Withdrawn <= 0 {
		t.Errorf("with the flood announced to the router: %+v; times %+v", router, s.Times)
	}
	if attack.Nodes[0].Reached == 0 || s.Times.FirstBan <= 0 || s.Times.Lifted <= 0 {
		t.Errorf("before the bans %d packets reached web-1; times %+v", attack.Nodes[0].Reached, s.Times)
	}
}

// demoObject is a process of a demonstration, or a program in the kernel.
type demoObject struct {
	kind string
	id   int
}

func (o demoObject) exists() bool {
	if o.kind == "process" {
		return unix.Kill(o.id, 0) == nil
	}
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(o.id))
	if err == nil {
		p.Close()
	}
	return err == nil
}

// demoObjects returns the descendants of a process, and the programs that are pinned in their BPF file systems.
func demoObjects(t *testing.T, pid int) (found []demoObject) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may be gone
		for _, word := range strings.Fields(string(text)) {
			var child int
			fmt.Sscan(word, &child)
			found = append(append(found, demoObject{"process", child}), demoObjects(t, child)...)
			for p, err := range pin.WalkDir(fmt.Sprintf("/proc/%d/root/sys/fs/bpf", child), nil) {
				if err != nil {
					break // it has just ended
				}
				program, ok := p.Object.(*ebpf.Program)
				if !ok {
					continue
				}
				if info, err := program.Info(); err == nil {
					id, _ := info.ID()
					found = append(found, demoObject{"program", int(id)})
				}
			}
		}
	}
	return found
}

// uplinks returns the receive threads of the demonstration's devices. A thread exists as long as its device and namespace.
func uplinks(t *testing.T) (found []string) {
	t.Helper()
	comms, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range comms {
		comm, _ := os.ReadFile(path) // the process may be gone
		if strings.HasPrefix(string(comm), "napi/uplink-") {
			found = append(found, path)
		}
	}
	return found
}
