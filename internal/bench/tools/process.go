package bench

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"github.com/floodwall/floodwall/internal/lab"
)

// process is a program of the system that runs in a host until it is killed, at the latest with this process.
type process struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	ended  chan struct{} // closed with err set
	err    error
}

// place says where a process runs.
type place struct {
	cpu      int
	priority int // one of lab's
}

// startProcess starts a program in a host, and returns when it runs. With a place, it stays there; nil leaves that to the
// scheduler. What it says goes to out, a file, which needs nobody to read it meanwhile; nil is nowhere.
func startProcess(h *lab.Host, at *place, out *os.File, name string, args ...string) (*process, error) {
	path, err := findTool(name)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(path, args...), ended: make(chan struct{})}
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
func (p *process) run(h *lab.Host, at *place, started chan<- struct{}) {
	runtime.LockOSThread() // never unlocked: nothing else ends the thread while the program runs
	defer close(p.ended)
	if at != nil {
		p.err = lab.Place(at.cpu, at.priority)
	}
	if p.err == nil {
		p.err = h.Do(p.cmd.Start)
	}
	close(started)
	if p.err == nil {
		p.err = p.cmd.Wait()
	}
}

// complaint is the first line of what the program says is wrong.
func (p *process) complaint() string {
	line, _, _ := strings.Cut(strings.TrimSpace(p.stderr.String()), "\n")
	return line
}

// kill ends the program, and returns when it has ended.
func (p *process) kill() {
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Kill() // or it has ended
	}
	<-p.ended
}
