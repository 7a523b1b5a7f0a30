// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/pin"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/instance"
	"github.com/floodwall/floodwall/test/testutil"
)

// beginnings are how the first lines of the phases begin, and of the download in a flood.
var beginnings = []string{"phase 1 ", "phase 2 ", "phase 3 ", "a download, while a flood lasts"}

// TestEnds ends a demonstration in each phase and at the download in a flood, with signals that it can handle and with a signal that it cannot handle.
func TestEnds(t *testing.T) {
	testutil.RequireRoot(t)
	for _, signal := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGKILL} {
		for phase := 1; phase <= len(beginnings); phase++ {
			if short := signal == unix.SIGINT && phase == 2 || signal != unix.SIGTERM && phase == 3; !short && !testutil.Long() {
				continue
			}
			t.Run(fmt.Sprintf("%v in phase %d", signal, phase), func(t *testing.T) { testEnd(t, signal, phase) })
		}
	}
}

func testEnd(t *testing.T, signal unix.Signal, phase int) {
	before := make(map[object]bool)
	addThreads(t, before)
	c := exec.Command("/proc/self/exe")
	temporary := t.TempDir()
	c.Env = append(os.Environ(), "FLOODWALL_TEST_DEMO="+program(t), "TMPDIR="+temporary)
	out, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	lines, page := bufio.NewScanner(out), ""
	for lines.Scan() && !strings.HasPrefix(lines.Text(), beginnings[phase-1]) {
		if _, address, ok := strings.Cut(lines.Text(), "the daemon's page, until the end: http://"); ok {
			page = strings.TrimSuffix(address, "/")
		}
	}
	least := map[int]int{1: 1, 2: 10, 3: 20, 4: 20}[phase]
	var made []object
	processes := 0
	if !testutil.Eventually(time.Minute, func() bool {
		made, processes = objectsOf(t, c.Process.Pid)
		made = slices.DeleteFunc(made, func(o object) bool { return before[o] })
		return len(made) >= least && processes >= 3
	}) {
		t.Errorf("found %d kernel objects and %d processes of it, expected at least %d, and server, clients and daemon", len(made), processes, least)
	}
	if err := c.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
	}
	if err := c.Wait(); err == nil {
		t.Errorf("it ended well; it said %q", said)
	}
	if signal != unix.SIGKILL && !slices.Contains(said, "context canceled") {
		t.Errorf("it said %q, want an error about its context", said)
	}
	checkGone(t, made)
	checkNoFiles(t, made, temporary)
	if c, err := net.Dial("tcp", page); err == nil || page == "" {
		t.Errorf("something listens where the page was, %q", page)
		c.Close()
	}
}

// checkNoFiles checks that no temporary file is left, and no lock of a process of the demonstration.
func checkNoFiles(t *testing.T, made []object, temporary string) {
	t.Helper()
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left in the directory for temporary files: %v, %v", left, err)
	}
	locks, err := filepath.Glob(filepath.Join(instance.DefaultDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, lock := range locks {
		text, _ := os.ReadFile(lock) // it may be gone
		process, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err == nil && slices.Contains(made, object{"process", process}) {
			t.Errorf("left: %s, of process %d", lock, process)
		}
	}
}

// checkGone waits until none of the objects exists. One map may stay: Linux 6.18 was seen to keep about one in 500 of the maps of all tests, though
// no descriptor or program holds it. A demonstration that forgets maps would leave several.
func checkGone(t *testing.T, made []object) {
	t.Helper()
	var left []object
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		left = slices.DeleteFunc(slices.Clone(made), func(o object) bool { return !o.exists() })
		if len(left) == 0 || len(left) == 1 && left[0].kind == "map" {
			return
		}
		if time.Now().After(end) {
			t.Errorf("left: %v", left)
			for _, o := range left {
				if o.kind == "process" {
					t.Errorf("process %d: %s", o.id, o.state())
				}
			}
			return
		}
	}
}

// object is an object of a demonstration in the kernel.
type object struct {
	kind string // prog, map, link as in fdinfo, napi or process
	id   int    // of napi, the thread
}

func (o object) exists() bool {
	var c io.Closer
	var err error
	switch o.kind {
	case "prog":
		c, err = ebpf.NewProgramFromID(ebpf.ProgramID(o.id))
	case "map":
		c, err = ebpf.NewMapFromID(ebpf.MapID(o.id))
	case "link":
		c, err = link.NewFromID(link.ID(o.id))
	case "napi":
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", o.id))
		return strings.HasPrefix(string(comm), "napi/")
	case "process":
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", o.id))
		return strings.HasPrefix(string(line), "floodwall")
	}
	if err == nil {
		c.Close()
	}
	return err == nil
}

// state returns what the kernel says of a process, and where its threads wait.
func (o object) state() string {
	var text []byte
	for _, pattern := range []string{"cmdline", "status", "task/*/stack"} {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/%s", o.id, pattern))
		for _, file := range files {
			part, err := os.ReadFile(file)
			text = fmt.Appendf(text, "%s: %s %v\n", file, part, err)
		}
	}
	return string(text)
}

// objectsOf finds the objects that a process holds by descriptors, those that are pinned in its file systems, and the receive threads of devices with
// the scene's name. It also returns the number of processes that it has started.
func objectsOf(t *testing.T, pid int) (objects []object, processes int) {
	t.Helper()
	found := make(map[object]bool)
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		addHeld(found, strings.Replace(fd, "/fd/", "/fdinfo/", 1))
		var fs unix.Statfs_t
		if unix.Statfs(fd, &fs) == nil && fs.Type == unix.BPF_FS_MAGIC {
			addPinned(t, found, fd)
		}
	}
	addThreads(t, found)
	processes = addChildren(t, found, pid)
	return slices.Collect(maps.Keys(found)), processes
}

// addThreads adds the receive threads of devices with the scene's name, of any process.
func addThreads(t *testing.T, found map[object]bool) {
	t.Helper()
	comms, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range comms {
		comm, _ := os.ReadFile(path) // the process may be gone
		if strings.HasPrefix(string(comm), "napi/"+floodDevice+"-") {
			id, _ := strconv.Atoi(strings.Split(path, "/")[2])
			found[object{"napi", id}] = true
		}
	}
}

// addChildren adds the processes that a process has started (flood, clients, server and daemon), and returns their number.
func addChildren(t *testing.T, found map[object]bool, pid int) (n int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may be gone
		for _, child := range strings.Fields(string(text)) {
			id, _ := strconv.Atoi(child)
			found[object{"process", id}] = true
			n++
		}
	}
	return n
}

// addHeld adds the object behind a descriptor (proc(5), /proc/pid/fdinfo).
func addHeld(found map[object]bool, fdinfo string) {
	text, _ := os.ReadFile(fdinfo) // the descriptor may be closed
	for line := range strings.Lines(string(text)) {
		kind, number, _ := strings.Cut(line, "_id:")
		id, err := strconv.Atoi(strings.TrimSpace(number))
		if err == nil && slices.Contains([]string{"prog", "map", "link"}, kind) {
			found[object{kind, id}] = true
		}
	}
}

// addPinned adds the objects that are pinned below a directory. Opening one makes a descriptor of this process, which shows it.
func addPinned(t *testing.T, found map[object]bool, dir string) {
	t.Helper()
	for p, err := range pin.WalkDir(dir+"/floodwall", nil) {
		if err != nil {
			return // nothing is applied now
		}
		addHeld(found, fmt.Sprintf("/proc/self/fdinfo/%d", p.Object.(interface{ FD() int }).FD()))
	}
}
