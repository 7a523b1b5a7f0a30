// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"syscall"
)

// role is work that this program does as a process of its own, in a host. All its threads have one CPU and one priority. With several priorities, a
// thread of a higher one could block the process: it may spin in Go's runtime until another thread has done its part (runtime/proc.go, casgstatus),
// and that thread never gets the CPU. Or it may wait for a thread that holds what it needs to continue after a system call.
type role struct {
	name          string // a key of roles
	cpu, priority int
	input         any // the process's input, as JSON
	files         []*os.File
	output        io.Writer // gets the process's output; nil: none
}

// roles are the functions of the roles, by their names. A process ends with the error of its function.
var roles = map[string]func() error{
	connectName: replying((*ConnectOptions).run), talkName: replying((*TalkOptions).run), loadName: loadMain,
	serverName: serverMain, echoName: echoMain, sourceName: sourceMain, stallName: stallMain,
}

// mayPlay is true after a call of Roles. Without this call, a started process would do the same as its parent.
var mayPlay bool

// Roles plays the role of this process and ends it, if Host.play has started it. Each program with a lab calls Roles first in main, and each package
// of tests in TestMain. The parameter more contains roles of other packages.
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

// moveRole makes the process execute itself again, pinned as its argument says. Its only thread is placed before this, so all threads that it starts
// later have the same place.
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

// readInput reads the input of the process.
func readInput(to any) error { return json.NewDecoder(os.Stdin).Decode(to) }

// replying returns a role that reads options, runs them, and writes the result.
func replying[Options, Summary any](run func(*Options) (Summary, error)) func() error {
	return func() error {
		debug.SetGCPercent(-1) // a pause would count as a client's
		o := new(Options)
		if err := readInput(o); err != nil {
			return err
		}
		s, err := run(o)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(s)
	}
}

// follow plays a role until it ends, and calls each with the values of its output, one after another.
func follow[T any](ctx context.Context, h *Host, r role, each func(T)) error {
	out, in := io.Pipe()
	ended := make(chan error, 1)
	r.output = in
	go func() {
		ended <- h.play(ctx, r)
		in.Close()
	}()
	defer out.Close()
	for values := json.NewDecoder(out); ; {
		var v T
		switch err := values.Decode(&v); {
		case err == io.EOF:
			return <-ended
		case err != nil:
			out.Close()
			return cmp.Or(<-ended, fmt.Errorf("what the process wrote: %w", err))
		}
		each(v)
	}
}

// play runs a process in the host until it or ctx ends.
func (h *Host) play(ctx context.Context, r role) error {
	if !mayPlay {
		return errors.New("lab.Roles was not called at the beginning of main, or of TestMain")
	}
	input, err := json.Marshal(r.input)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{r.name, fmt.Sprint(r.cpu, r.priority)}
	cmd.Stdin, cmd.Stdout, cmd.ExtraFiles = bytes.NewReader(input), r.output, r.files
	p, err := h.Start(cmd, nil)
	if err != nil {
		return err
	}
	if err := p.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, p.Complaint())
	}
	return nil
}
