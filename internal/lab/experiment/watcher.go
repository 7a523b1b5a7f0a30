package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/floodwall/floodwall/internal/daemon"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/rig"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// watcherName is what this program is called as a process that does what `floodwall daemon` does.
const watcherName = "floodwall-watcher"

// Roles is lab.Roles for a program that also has experiments. What watches an instance must have all its threads in the instance's network
// namespace, which only a process of its own can have.
func Roles() { lab.Roles(map[string]func() error{watcherName: watchHere}) }

// watchHere is all that the process does: it watches the instance that is pinned in the file system that it has inherited.
func watchHere() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var model cost.Model
	if err := json.NewDecoder(os.Stdin).Decode(&model); err != nil {
		return err
	}
	in := control.Instance{Dir: fmt.Sprintf("/proc/self/fd/%d/%s", inheritedPins, rig.Pinned)}
	return daemon.Watch(ctx, in, "", func() *cost.Model { return &model }, func(e daemon.Event) { fmt.Fprintln(os.Stderr, e.Text, e.Err) })
}

// inheritedPins is the first descriptor that a process inherits beside the usual three.
const inheritedPins = 3

// watcher is such a process.
type watcher struct {
	cmd   *exec.Cmd
	said  bytes.Buffer
	ended chan error
}

// placementWatch starts a process that watches the instance in p, in a host. It ends with stop, at the latest with this process.
func placementWatch(p *rig.Pins, h *lab.Host, m *cost.Model) (*watcher, error) {
	model, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	w := &watcher{cmd: exec.Command("/proc/self/exe"), ended: make(chan error, 1)}
	w.cmd.Args = []string{watcherName}
	w.cmd.Stdin, w.cmd.Stderr, w.cmd.ExtraFiles = bytes.NewReader(model), &w.said, []*os.File{p.Root}
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the process must end with this one, not with a thread before
		err := h.Do(w.cmd.Start)
		started <- err
		if err == nil {
			w.ended <- w.cmd.Wait()
		}
	}()
	return w, <-started
}

// stop ends the process, and returns what it complained about if it ended badly.
func (w *watcher) stop() error {
	early := w.cmd.Process.Signal(syscall.SIGTERM)
	if err := errors.Join(early, <-w.ended); err != nil {
		return fmt.Errorf("watcher: %w: %s", err, bytes.TrimSpace(w.said.Bytes()))
	}
	return nil
}
