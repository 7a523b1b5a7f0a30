package demo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long anything may take on a machine with other work.
const patience = time.Minute

// InsideVar tells, in the environment, that a process has the Namespaces.
const InsideVar = "FLOODWALL_DEMO_FLEET"

// open opens the programs of Floodwall: a user without rights may not reach the directory that they are in.
func (s *site) open(find func(program string) (string, error)) error {
	s.programs = map[string]*os.File{}
	for _, name := range []string{"floodwall", "floodwall-hub", "floodwall-bgp"} {
		file, err := find(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if s.programs[name], err = os.Open(file); err != nil {
			return err
		}
	}
	return nil
}

// command is a command of one of the programs, which is the first of args.
func (s *site) command(ctx context.Context, args []string) *exec.Cmd {
	c := exec.CommandContext(ctx, fmt.Sprintf("/proc/self/fd/%d", s.programs[args[0]].Fd()))
	c.Args = args
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, InsideVar+"=") })
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setsid: true} // Ctrl-C is for the demonstration alone, which ends them
	return c
}

// start starts a command in a host, and calls ended with what it comes to. The kernel kills it with the thread that started it
// (prctl(2), PR_SET_PDEATHSIG), so that thread waits for it.
func (h *host) start(c *exec.Cmd, ended func(error)) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := h.lab.Do(c.Start)
		started <- err
		if err == nil {
			ended(c.Wait())
		}
	}()
	return <-started
}

// shown is a command as the operator would write it: without the flags that keep the instances of this demonstration apart.
func shown(h *host, args []string) string {
	var words []string
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--state" || args[i] == "--bpffs" || args[i] == "--dir":
			i++
		case len(args[i]) > 60:
			words = append(words, args[i][:12]+"...")
		default:
			words = append(words, strings.TrimPrefix(args[i], fleetStateDir+"/"))
		}
	}
	return h.name + "$ " + strings.Join(words, " ")
}

// run runs a command in a host to its end, and returns what it prints.
func (s *site) run(ctx context.Context, h *host, args ...string) (string, error) {
	s.log(shown(h, args))
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := s.command(ctx, args)
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	ended := make(chan error, 1)
	err := h.start(c, func(err error) { ended <- err })
	if err == nil {
		err = <-ended
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", shown(h, args), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out.String(), nil
}

// process is a command that goes on.
type process struct {
	what  string
	log   string // file of what it prints
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // after ended
}

// serve starts a command that goes on until the site ends, and waits until it has printed a text.
func (s *site) serve(ctx context.Context, h *host, ready string, args ...string) error {
	return s.goOn(ctx, h, shown(h, args), ready, s.command(context.Background(), args))
}

// goOn is serve, of any command.
func (s *site) goOn(ctx context.Context, h *host, what, ready string, c *exec.Cmd) error {
	s.log(what)
	p := &process{what: what, log: filepath.Join(fleetStateDir, fmt.Sprintf("%s-%d.log", h.name, len(s.served))), cmd: c, ended: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer out.Close()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	err = h.start(p.cmd, func(err error) {
		p.err = err
		close(p.ended)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", p.what, err)
	}
	s.served = append(s.served, p)
	return s.until(ctx, p.what, func() (bool, error) {
		text, err := os.ReadFile(p.log)
		return strings.Contains(string(text), ready), err
	})
}

// until waits for something, as long as all processes go on.
func (s *site) until(ctx context.Context, what string, is func() (bool, error)) error {
	for end := time.Now().Add(patience); ; {
		if done, err := is(); done || err != nil {
			return err
		}
		for _, p := range s.served {
			select {
			case <-p.ended:
				return fmt.Errorf("%s: ended: %v: %s", p.what, p.err, p.lastLines())
			default:
			}
		}
		if time.Now().After(end) {
			return &FleetTrouble{fmt.Sprintf("%s: waited %v in vain", what, patience), fleetReport}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// lastLines are those of a process that say why it ended.
func (p *process) lastLines() string {
	text, _ := os.ReadFile(p.log) // without them the error says less
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// end ends the processes. One that does not end by itself is killed.
func (s *site) end() {
	var ending sync.WaitGroup
	for _, p := range s.served {
		ending.Go(p.end)
	}
	ending.Wait()
	for _, f := range s.programs {
		f.Close()
	}
}

func (p *process) end() {
	_ = p.cmd.Process.Signal(unix.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(patience / 6):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}
