// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// Daemon is a server of the system in a host. It is one process, which ends with this process.
type Daemon struct {
	*lab.Process
	dir string
}

// StartDaemon starts a server. A place sets its CPU; with nil the scheduler chooses. The function configure writes the server's files to a directory, and
// returns its arguments. StartDaemon returns when answers returns no error: when the server answers.
func StartDaemon(
	ctx context.Context, h *lab.Host, at *Place, name string, configure func(dir string) ([]string, error), answers func() error,
) (d *Daemon, err error) {
	d = &Daemon{}
	if d.dir, err = os.MkdirTemp("", "floodwall-bench-"); err != nil {
		return nil, err
	}
	args, err := configure(d.dir)
	if err == nil {
		d.Process, err = StartProcess(h, at, nil, name, args...)
	}
	if err != nil {
		os.RemoveAll(d.dir)
		return nil, err
	}
	if err := d.await(ctx, name, answers); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// await waits until the server answers.
func (d *Daemon) await(ctx context.Context, name string, answers func() error) error {
	for end := time.Now().Add(10 * time.Second); ; {
		err := answers()
		if err == nil {
			return nil
		}
		select {
		case <-d.Ended:
			return &Missing{fmt.Sprintf("%s: %v: %s", name, d.Err, d.Complaint())}
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: does not answer: %w", name, err)
		}
	}
}

// Close kills the server and removes its directory.
func (d *Daemon) Close() error {
	d.Kill()
	return os.RemoveAll(d.dir)
}

// Place describes where a process runs.
type Place struct {
	CPU      int
	Priority int // one of package lab's priorities
}

// StartProcess starts a program of the system in a host. A place sets its CPU; with nil the scheduler chooses. The output is written to the file out,
// which nobody has to read while the program runs; with nil it is discarded.
func StartProcess(h *lab.Host, at *Place, out *os.File, name string, args ...string) (*lab.Process, error) {
	path, err := find(name)
	if err != nil {
		return nil, err
	}
	c := exec.Command(path, args...)
	if out != nil {
		c.Stdout = out
	}
	return h.Start(c, func() error {
		if at == nil {
			return nil
		}
		return lab.Place(at.CPU, at.Priority)
	})
}
