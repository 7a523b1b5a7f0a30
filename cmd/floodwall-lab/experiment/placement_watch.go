package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/floodwall/floodwall/internal/daemon"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// watcherName is the name of this program as a process that does the work of `floodwall daemon`.
const watcherName = "floodwall-watcher"

// Roles is like lab.Roles, but for a program that also has experiments. A process that watches an instance must have all its threads in the
// instance's network namespace. This needs a process of its own.
func Roles() { lab.Roles(map[string]func() error{watcherName: watchHere}) }

// watchHere does the work of this process: it watches the instance that is pinned in the file system that the process inherited.
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

// inheritedPins is the first descriptor that a process inherits after the usual three.
const inheritedPins = 3

// placementWatch starts a process in a host. The process watches the instance that is pinned in p.
func placementWatch(p *rig.Pins, h *lab.Host, m *cost.Model) (*lab.Process, error) {
	model, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	c := exec.Command("/proc/self/exe")
	c.Args = []string{watcherName}
	c.Stdin, c.ExtraFiles = bytes.NewReader(model), []*os.File{p.Root}
	return h.Start(c, nil)
}

// watcherPatience is the longest time that the process may take to end.
const watcherPatience = 20 * time.Second

// stopWatcher ends the process. If the process failed, the error has its messages.
func stopWatcher(w *lab.Process) error {
	if w.Stop(watcherPatience); w.Err != nil {
		return fmt.Errorf("watcher: %w: %s", w.Err, w.Complaint())
	}
	return nil
}
