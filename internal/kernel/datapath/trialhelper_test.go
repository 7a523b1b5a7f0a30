// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// slots distinguish the policies of the tests. Each policy drops all packets that enter and all responses that leave, and counts them in its own
// slot.
var slots = map[string]uint32{"older": 70, "old": 71, "new": 72, "newer": 73}

// policy loads the policy with a given name.
func policy(t *testing.T, name string) *datapath.Program {
	t.Helper()
	return loadInside(t, guarding(slots[name]))
}

// ending returns the end of a trial that starts now and has the given length. For the length 0 it returns the zero time.
func ending(trial time.Duration) time.Time {
	if trial == 0 {
		return time.Time{}
	}
	return time.Now().Add(trial)
}

// begin sets the end of a trial to the given length from now, because installing may have taken long.
func begin(t *testing.T, s *datapath.State, trial time.Duration) {
	t.Helper()
	if trial == 0 {
		return
	}
	if err := s.RestartTrial(ending(trial)); err != nil {
		t.Fatal(err)
	}
}

// loaded has the programs of the policies that put has installed, by the policies' names. The verifier takes most of the time of these tests, so each
// test loads a policy once. A test has a process of its own.
var loaded = map[string]*datapath.Program{}

// put installs the policy with this name.
func put(t *testing.T, s *datapath.State, name string, trial time.Duration, to []datapath.Attachment) []*datapath.Device {
	t.Helper()
	if loaded[name] == nil {
		loaded[name] = policy(t, name)
		t.Cleanup(func() { delete(loaded, name) })
	}
	devices, err := s.Install(loaded[name], []byte(name), to, ending(trial))
	if err != nil {
		t.Fatalf("installing %s: %v", name, err)
	}
	begin(t, s, trial)
	return devices
}

// in returns the devices with their modes. An asterisk means generic mode.
func in(devices string) (to []datapath.Attachment) {
	for _, d := range strings.Fields(devices) {
		a := datapath.Attachment{Device: d, Mode: datapath.Native}
		if name, generic := strings.CutSuffix(d, "*"); generic {
			a = datapath.Attachment{Device: name, Mode: datapath.Generic}
		}
		to = append(to, a)
	}
	return to
}

// decides runs the programs of a device on a packet that enters and on one that leaves. It returns the name of the policy that counts both. It
// returns "pass" if no policy counts them, "" if no program is attached, and both names if they differ.
func decides(t *testing.T, name string) string {
	t.Helper()
	dev := device(t, name)
	in, out := decidesComing(t, dev), decidesLeaving(t, dev)
	if out != "" && !hasEntering(t, dev) {
		t.Errorf("device %s has a program for what leaves, and none for what enters", name)
	}
	if out == in || out == "" && in == "pass" {
		return in
	}
	return in + "/" + out
}

func device(t *testing.T, name string) netlink.Link {
	t.Helper()
	dev, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

func decidesComing(t *testing.T, dev netlink.Link) string {
	t.Helper()
	if dev.Attrs().Xdp == nil || !dev.Attrs().Xdp.Attached {
		return ""
	}
	prog, err := ebpf.NewProgramFromID(ebpf.ProgramID(dev.Attrs().Xdp.ProgId))
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	return counts(t, func() {
		if got, want := run(t, prog, frame(t, syn)), uint32(xdpDrop); got != want && got != xdpPass {
			t.Errorf("device %s: XDP action %d", dev.Attrs().Name, got)
		}
	})
}

// counts returns the name of the policy that counts most packets while do runs. It returns "pass" if no policy counts any.
func counts(t *testing.T, do func()) string {
	t.Helper()
	before := counted(t)
	do()
	name, most := "pass", uint64(0)
	for n, c := range counted(t) {
		if c-before[n] > most {
			name, most = n, c-before[n]
		}
	}
	return name
}

// counted returns the counts of each policy, summed over all existing generations.
func counted(t *testing.T) map[string]uint64 {
	t.Helper()
	sums := map[string]uint64{}
	pins, err := filepath.Glob(stateDir + "/generation-*/" + image.Counters)
	if err != nil {
		t.Fatal(err)
	}
	for _, pin := range pins {
		m, err := ebpf.LoadPinnedMap(pin, nil)
		if err != nil {
			continue // has been removed since
		}
		all, err := datapath.ReadCounters(m, 80)
		m.Close()
		if err != nil {
			t.Fatal(err)
		}
		for name, slot := range slots {
			sums[name] += all[slot].Packets
		}
	}
	return sums
}

// state returns which policies decide on fw0 and on fw1.
func state(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(decides(t, "fw0") + " " + decides(t, "fw1"))
}

// expect checks which policies decide on the two devices.
func expect(t *testing.T, when, want string) {
	t.Helper()
	if got := state(t); got != want {
		t.Errorf("%s, %q decide, want %q", when, got, want)
	}
}

// running returns what Running reports: policies with their devices, newest first.
func running(t *testing.T, s *datapath.State) string {
	t.Helper()
	generations, err := s.Running()
	if err == datapath.ErrNotLoaded {
		return "nothing"
	}
	if err != nil {
		t.Fatal(err)
	}
	defer datapath.CloseAll(generations)
	var text []string
	for _, g := range generations {
		line := string(g.Manifest) + ":"
		for _, d := range g.Devices {
			line += " " + d.Name
		}
		text = append(text, line)
	}
	return strings.Join(text, "; ")
}

// pins lists the directories and the links of the state.
func pins(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"generation-*", "trial-*", "links/*"} {
		found, err := filepath.Glob(stateDir + "/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			names = append(names, strings.TrimPrefix(f, stateDir+"/"))
		}
	}
	slices.Sort(names)
	return names
}

// havePins checks which directories and links there are.
func havePins(t *testing.T, when string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(want, pins(t)); diff != "" {
		t.Errorf("%s, wrong pins (-want +got):\n%s", when, diff)
	}
}

// expire makes the trial end soon, and waits for its deadline.
func expire(t *testing.T, s *datapath.State) {
	t.Helper()
	begin(t, s, 100*time.Millisecond)
	untilExpired(t, s)
}

// untilExpired waits for the deadline of the trial. There must be one.
func untilExpired(t *testing.T, s *datapath.State) {
	t.Helper()
	trial, err := s.Trial()
	if err != nil || trial == nil {
		t.Fatalf("trial: %v, %v", trial, err)
	}
	time.Sleep(trial.Left() + time.Millisecond)
	if !trial.Expired() {
		t.Fatal("the deadline has passed, and the trial has not expired")
	}
}

// childVar is the environment variable with the task of a process that the tests start.
const childVar = "FLOODWALL_TEST_CHILD"

// TestChild is not a test. It is the code of the processes that the tests start in order to kill them.
func TestChild(t *testing.T) {
	task := strings.Fields(os.Getenv(childVar))
	if len(task) == 0 {
		return
	}
	s := locked(t)
	change := s.Confirm
	switch task[0] {
	case "rollback":
		change = s.Rollback
	case "install":
		length, err := time.ParseDuration(task[1])
		if err != nil {
			t.Fatal(err)
		}
		p := policy(t, "new")
		change = func() error {
			_, err := s.Install(p, []byte("new"), in(strings.Join(task[2:], " ")), ending(length))
			return err
		}
	}
	fmt.Println("ready")
	start := time.Now()
	if err := change(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("done", time.Since(start))
	select {} // until it is killed
}

// child starts a process that does a task, and waits until the process prints a certain line. It returns the process and the rest of that line. The
// caller must kill the process.
func child(t *testing.T, task, line string) (cmd *exec.Cmd, rest string) {
	t.Helper()
	cmd = exec.Command("/proc/self/exe", "-test.run=^TestChild$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), childVar+"="+task)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), line); found {
			return cmd, strings.TrimSpace(rest)
		}
		if strings.Contains(lines.Text(), "FAIL") || strings.Contains(lines.Text(), "Error") {
			t.Logf("child: %s", lines.Text())
		}
	}
	cmd.Wait()
	t.Fatalf("the process for %q ended before it came to %q", task, line)
	return nil, ""
}

// kill ends a process as SIGKILL does.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
}

// whole lets a process do a task to the end, kills the process, and returns how long the task took.
func whole(t *testing.T, task string) time.Duration {
	t.Helper()
	cmd, rest := child(t, task, "done")
	kill(t, cmd)
	took, err := time.ParseDuration(rest)
	if err != nil {
		t.Fatal(err)
	}
	return took
}

// killIn kills a process that does a task, at a random moment during the task or shortly after.
func killIn(t *testing.T, r *rand.Rand, task string, takes time.Duration) {
	t.Helper()
	cmd, _ := child(t, task, "ready")
	time.Sleep(time.Duration(r.Int64N(int64(takes) * 5 / 4)))
	kill(t, cmd)
}

// unloaded unloads, and checks that no pins, programs, links and maps are left.
func unloaded(t *testing.T, s *datapath.State) {
	t.Helper()
	unloadAll(t, s)
	havePins(t, "unloaded")
	for _, device := range []string{"fw0", "fw1"} {
		if got := decides(t, device); got != "" {
			t.Errorf("%s decides on %s", got, device)
		}
		if dev, err := netlink.LinkByName(device); err == nil && hasEntering(t, dev) {
			t.Errorf("%s has a program for what enters", device)
		}
	}
}

// cable makes the veth pair of fw0 and fw1.
func cable(t *testing.T) *datapath.State {
	t.Helper()
	testutil.Veth(t, "fw0", "fw1")
	return locked(t)
}
