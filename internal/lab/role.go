package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// role is something that this program does as a process of its own, in a host: all its threads have one place and one
// priority. In a process whose threads have several, one of a higher priority may spin in Go's runtime until another has done
// its part (runtime/proc.go, casgstatus), which never gets the CPU to do so, or wait for one that holds what it needs to
// go on after a system call.
type role struct {
	name          string // of one of roles
	cpu, priority int
	input         any // what the process reads, as JSON
	files         []*os.File
	output        io.Writer // of what the process writes; nil: play returns it
}

// roles are what the processes do, by their names. What they return an error of is their end.
var roles = map[string]func() error{connectName: connectMain, echoName: echoMain, loadName: loadMain, serverName: serverMain, sourceName: sourceMain, stallName: stallMain, talkName: talkMain}

// mayPlay is whether this process has called Roles. One that has not would do in the process that it starts what it does itself.
var mayPlay bool

// Roles does what this process is for and ends it, if Host.play has started it as one of roles. Each program that has a lab calls it first
// in main, and each package of tests in TestMain. more are roles of other packages.
func Roles(more map[string]func() error) {
	mayPlay = true
	if len(os.Args) == 0 {
		return
	}
	do := roles[os.Args[0]]
	if do == nil {
		do = more[os.Args[0]]
	} else if len(os.Args) > 1 {
		do = moveRole
	}
	if do == nil {
		return
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// moveRole has the process become itself again where its argument says. That places the only thread of its next life, and
// so all that this one starts.
func moveRole() error {
	var cpu, priority int
	if _, err := fmt.Sscan(os.Args[1], &cpu, &priority); err != nil {
		return fmt.Errorf("place %q: %w", os.Args[1], err)
	}
	if err := Place(cpu, priority); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args[:1], os.Environ())
}

// readInput reads what the process is to do.
func readInput(to any) error { return json.NewDecoder(os.Stdin).Decode(to) }

// play runs a process in the host until it or ctx ends, and returns what it wrote.
func (h *Host) play(ctx context.Context, r role) ([]byte, error) {
	if !mayPlay {
		return nil, errors.New("lab.Roles was not called at the beginning of main, or of TestMain")
	}
	input, err := json.Marshal(r.input)
	if err != nil {
		return nil, err
	}
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{r.name, fmt.Sprint(r.cpu, r.priority)}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = bytes.NewReader(input), &out, &complaint, r.files
	if r.output != nil {
		cmd.Stdout = r.output
	}
	// The kernel kills it with the thread that started it, whichever way this process ends. See Eager for the session.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := h.Do(cmd.Start); err != nil {
		return nil, err
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out.Bytes(), nil
}
