// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestMain makes this binary act as the command floodwall for scripts and for the tests in kernel_test.go. It puts the other programs into PATH.
func TestMain(m *testing.M) {
	lab.Roles(nil)
	commands := map[string]func(){"floodwall": floodwallInPath, "udpserver": udpServer}
	if commands[filepath.Base(os.Args[0])] == nil {
		if err := buildPrograms(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	testscript.Main(m, commands)
}

// programsVar is the environment variable with the directory of the programs that buildPrograms has built.
const programsVar = "FLOODWALL_TEST_PROGRAMS"

// buildPrograms builds all programs from the present source and puts their directory into PATH. In a process that a test started, it does nothing,
// because PATH already has the directory.
func buildPrograms() error {
	if os.Getenv(programsVar) != "" {
		return nil // this is a process of a test
	}
	name, races := "programs", "-race=false"
	if withRaces() {
		name, races = "programs-race", "-race"
	}
	dir, err := filepath.Abs("../../build/" + name)
	if err != nil {
		return err
	}
	build := exec.Command("scripts/go", "build", races, "-buildvcs=false", "-ldflags=-s -w", "-o", dir+"/", "./cmd/floodwall", "./cmd/floodwall-lab", "./cmd/floodwall-hub", "./cmd/floodwall-bgp")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "GOWORK="+filepath.Join(filepath.Dir(filepath.Dir(dir)), "go.work"))
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the programs: %w\n%s", err, out)
	}
	return errors.Join(os.Setenv(programsVar, dir), os.Setenv("PATH", dir+":"+os.Getenv("PATH")))
}

// withRaces reports whether the race detector is built into this program (scripts/race -programs).
func withRaces() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// floodwallInPath runs floodwall. Unlike an installed floodwall, it searches for the other programs in PATH.
func floodwallInPath() {
	if file, err := exec.LookPath("floodwall-lab"); err == nil {
		cli.Installed = []string{filepath.Dir(file)}
	}
	main()
}

// unlike are the scripts whose result is different for root.
var unlike = []string{"testdata/doctor.txtar", "testdata/rights.txtar"}

// TestScripts runs the scripts that need no privileges. If the test has privileges, it runs them in namespaces of its own. Then a command that
// applies a policy by mistake cannot change the host.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) <= len(unlike) {
		t.Fatalf("scripts %q: %v", files, err)
	}
	runScripts(t, slices.DeleteFunc(files, func(file string) bool { return slices.Contains(unlike, file) }))
}

// TestScriptsOfRoot runs the scripts whose result is different for root: as root, and as the user of the test.
func TestScriptsOfRoot(t *testing.T) {
	t.Run("root", func(t *testing.T) {
		if testutil.Inside(t) {
			runScripts(t, unlike)
		}
	})
	if os.Geteuid() != 0 {
		t.Run("user", func(t *testing.T) { runScripts(t, unlike) })
	}
}

func runScripts(t *testing.T, files []string) {
	if cli.Privileged() && !testutil.Inside(t) {
		return
	}
	params := testscript.Params{Files: files, Condition: condition, Cmds: map[string]func(*testscript.TestScript, bool, []string){"record": record, "countries": countries}}
	testscript.Run(t, params)
}

// countries writes a database of countries, as in `countries geo.mmdb 192.0.2.0/24=XX`.
func countries(ts *testscript.TestScript, _ bool, args []string) {
	var all []testutil.Network
	for _, text := range args[1:] {
		prefix, country, _ := strings.Cut(text, "=")
		all = append(all, testutil.Network{Prefix: prefix, Country: country})
	}
	ts.Check(testutil.Write(ts.MkAbs(args[0]), all...))
}

func condition(name string) (bool, error) {
	return name == "root" && cli.Privileged(), nil
}

// TestKernelScripts runs each script in testdata/kernel in namespaces of its own. They have a device fw0 (192.0.2.1), whose other end is fw1. The
// environment is that of an SSH session from 203.0.113.5.
func TestKernelScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/kernel/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24", "2001:db8::1/64")
			testscript.Run(t, testscript.Params{
				Files: []string{file},
				Setup: func(e *testscript.Env) error {
					e.Setenv("SSH_CONNECTION", "203.0.113.5 50000 192.0.2.1 22")
					before := testutil.Now()
					e.Defer(func() {
						if found := testutil.Leftovers(before); found != nil {
							t.Errorf("left in the kernel:\n%s", strings.Join(found, "\n"))
						}
					})
					return nil
				},
				Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
					"nothing-left": nothingLeft,
					"foreign":      foreign,
					"confirm-soon": confirmSoon,
					"trial":        untilTrial,
					"send":         send,
					"send-until":   sendUntil,
					"send-during":  sendDuring,
					"record":       record,
					"mount":        mount,
					"unmount":      unmount,
				},
			})
		})
	}
}

// nothingLeft fails if a file or an attachment is left. Usage: nothing-left. The end of the script checks other objects in the kernel, because the
// kernel needs some time to remove them.
func nothingLeft(ts *testscript.TestScript, _ bool, _ []string) {
	if found := testutil.LeftoverPins(); found != nil {
		ts.Fatalf("left behind:\n%s", strings.Join(found, "\n"))
	}
}

// confirmSoon waits for a trial, and confirms it. Usage: confirm-soon.
func confirmSoon(ts *testscript.TestScript, _ bool, _ []string) {
	if !testutil.Eventually(time.Minute, func() bool { return exec.Command("floodwall", "confirm").Run() == nil }) {
		ts.Fatalf("no policy is on trial")
	}
}

// untilTrial waits until a policy is on trial. Usage: trial.
func untilTrial(ts *testscript.TestScript, _ bool, _ []string) {
	on := func() bool {
		out, err := exec.Command("floodwall", "status", "--json").Output()
		return err == nil && strings.Contains(string(out), `"trial"`)
	}
	if !testutil.Eventually(time.Minute, on) {
		ts.Fatalf("no policy is on trial")
	}
}

// foreign attaches a program of another tool to a device for the rest of the script. Usage: foreign DEVICE.
func foreign(ts *testscript.TestScript, _ bool, args []string) {
	detach, err := testutil.AttachForeign(args[0])
	ts.Check(err)
	ts.Defer(func() { detach() })
}

// send sends packets through a device. Usage: send DEVICE NUMBER PACKET.
func send(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(testutil.Send(args[0], args[2], n))
}

// sendUntil sends packets through a device, ten a second, until a file contains a text. Usage: send-until FILE TEXT DEVICE PACKET.
func sendUntil(ts *testscript.TestScript, _ bool, args []string) {
	for !strings.Contains(ts.ReadFile(args[0]), args[1]) {
		ts.Check(testutil.Send(args[2], args[3], 1))
		time.Sleep(100 * time.Millisecond)
	}
}

// sendDuring sends packets through a device while a command runs. Usage: send-during DEVICE LINES COMMAND.... LINES is a file in which each line has
// a number and a packet, as for record.
func sendDuring(ts *testscript.TestScript, neg bool, args []string) {
	var all []string
	eachPacket(ts, args[1], func(line string) { all = append(all, line) })
	done, sent := make(chan struct{}), make(chan error)
	go func() {
		sent <- testutil.SendFor(args[0], all, func(int) bool {
			select {
			case <-done:
				return false
			case <-time.After(100 * time.Microsecond):
				return true
			}
		})
	}()
	err := ts.Exec(args[2], args[3:]...)
	close(done)
	ts.Check(<-sent)
	if (err != nil) != neg {
		ts.Fatalf("%v", err)
	}
}

// eachPacket calls f for each packet of a file. A line of the file has a number and a packet. The packet is repeated this many times. In each copy,
// {i} is replaced by its index.
func eachPacket(ts *testscript.TestScript, file string, f func(line string)) {
	for line := range strings.Lines(ts.ReadFile(file)) {
		number, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(number)
		ts.Check(err)
		for i := range n {
			f(strings.ReplaceAll(text, "{i}", strconv.Itoa(i)))
		}
	}
}

// record writes packets to a capture file. Usage: record FILE LINES.
func record(ts *testscript.TestScript, _ bool, args []string) {
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	defer f.Close()
	w, err := sample.NewFileWriter(f, 65535, "eth0")
	ts.Check(err)
	at := time.Unix(1_700_000_000, 0)
	eachPacket(ts, args[1], func(line string) {
		spec, err := packet.Parse(line)
		ts.Check(err)
		frame := spec.Frame()
		at = at.Add(time.Millisecond)
		ts.Check(w.Write(sample.Sample{Time: at, Device: "eth0", Length: len(frame), Frame: frame}, ""))
	})
}

// mount mounts an empty file system on a directory for the rest of the script. Usage: mount DIRECTORY.
func mount(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(unix.Mount("tmpfs", args[0], "tmpfs", 0, "mode=0755"))
	ts.Defer(func() { unix.Unmount(args[0], unix.MNT_DETACH) })
}

// unmount unmounts a file system. Usage: unmount DIRECTORY.
func unmount(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(unix.Unmount(args[0], 0))
}
