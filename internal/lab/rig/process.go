package rig

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"github.com/floodwall/floodwall/internal/lab"
)

// Process is a program of the system that runs in a host until it is killed, at the latest with this process.
type Process struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	Ended  chan struct{} // closed with err set
	Err    error
}

// Place says where a process runs.
type Place struct {
	CPU      int
	Priority int // one of lab's
}

// StartProcess starts a program in a host, and returns when it runs. With a place, it stays there; nil leaves that to the
// scheduler. What it says goes to out, a file, which needs nobody to read it meanwhile; nil is nowhere.
func StartProcess(h *lab.Host, at *Place, out *os.File, name string, args ...string) (*Process, error) {
	path, err := find(name)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(path, args...), Ended: make(chan struct{})}
	p.cmd.Stderr = &p.stderr
	if out != nil {
		p.cmd.Stdout = out
	}
	// The kernel kills it with the thread that started it, whichever way this process ends.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan struct{})
	go p.run(h, at, started)
	<-started
	return p, nil
}

// run runs the program on a thread of its own, until it ends.
func (p *Process) run(h *lab.Host, at *Place, started chan<- struct{}) {
	runtime.LockOSThread() // never unlocked: nothing else ends the thread while the program runs
	defer close(p.Ended)
	if at != nil {
		p.Err = lab.Place(at.CPU, at.Priority)
	}
	if p.Err == nil {
		p.Err = h.Do(p.cmd.Start)
	}
	close(started)
	if p.Err == nil {
		p.Err = p.cmd.Wait()
	}
}

// Complaint is the first line of what the program says is wrong.
func (p *Process) Complaint() string {
	line, _, _ := strings.Cut(strings.TrimSpace(p.stderr.String()), "\n")
	return line
}

// Kill ends the program, and returns when it has ended.
func (p *Process) Kill() {
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Kill() // or it has ended
	}
	<-p.Ended
}
