// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// patience is the longest time that a step may take on a machine with other load.
const patience = time.Minute

// InsideVar is the environment variable that tells a process that it already runs in the Namespaces.
const InsideVar = "FLOODWALL_DEMO_FLEET"

// open opens the files of Floodwall's programs. Later, a user without rights starts some of them, and might not be able to access their directory.
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

// command returns a command of one of the programs. The first element of args is the name of the program.
func (s *site) command(ctx context.Context, args []string) *exec.Cmd {
	c := exec.CommandContext(ctx, fmt.Sprintf("/proc/self/fd/%d", s.programs[args[0]].Fd()))
	c.Args = args
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, InsideVar+"=") })
	return c
}

// shown returns a command as an operator would write it. It leaves out the flags that separate the instances of this demonstration.
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

// run runs a command on a host, waits for its end, and returns its output.
func (s *site) run(ctx context.Context, h *host, args ...string) (string, error) {
	s.log(shown(h, args))
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := s.command(ctx, args)
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	p, err := h.lab.Start(c, nil)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", shown(h, args), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out.String(), nil
}

// process is a running command that does not end by itself.
type process struct {
	*lab.Process
	what string
	log  string // file of its output
}

// serve starts a command that runs until the end of the site. It waits until the command has printed the text ready.
func (s *site) serve(ctx context.Context, h *host, ready string, args ...string) error {
	return s.goOn(ctx, h, shown(h, args), ready, s.command(context.Background(), args))
}

// goOn is like serve, but for any command.
func (s *site) goOn(ctx context.Context, h *host, what, ready string, c *exec.Cmd) error {
	s.log(what)
	p := &process{what: what, log: filepath.Join(fleetStateDir, fmt.Sprintf("%s-%d.log", h.name, len(s.served)))}
	out, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer out.Close()
	c.Stdout, c.Stderr = out, out
	if p.Process, err = h.lab.Start(c, nil); err != nil {
		return fmt.Errorf("%s: %w", p.what, err)
	}
	s.served = append(s.served, p)
	return s.until(ctx, p.what, func() (bool, error) {
		text, err := os.ReadFile(p.log)
		return strings.Contains(string(text), ready), err
	})
}

// until waits until is returns true. It fails if a process ends before.
func (s *site) until(ctx context.Context, what string, is func() (bool, error)) error {
	for end := time.Now().Add(patience); ; {
		if done, err := is(); done || err != nil {
			return err
		}
		for _, p := range s.served {
			select {
			case <-p.Ended:
				return fmt.Errorf("%s: ended: %v: %s", p.what, p.Err, p.lastLines())
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

// lastLines returns the last lines of a process's output. These lines usually say why the process ended.
func (p *process) lastLines() string {
	text, _ := os.ReadFile(p.log) // without them the error says less
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// end ends all processes. It kills those that do not end when they are told to.
func (s *site) end() {
	var ending sync.WaitGroup
	for _, p := range s.served {
		ending.Go(func() { p.Stop(patience / 6) })
	}
	ending.Wait()
	for _, f := range s.programs {
		f.Close()
	}
}
