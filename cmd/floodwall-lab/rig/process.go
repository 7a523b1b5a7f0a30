// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"os"
	"os/exec"

	"github.com/floodwall/floodwall/internal/lab"
)

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
