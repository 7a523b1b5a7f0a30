// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
)

// elsewhere runs the same command in new namespaces. An environment variable tells the command that it runs there.
func (e *env) elsewhere(c *cobra.Command, variable string, attr *syscall.SysProcAttr) error {
	// The kernel ends the child when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	inner := exec.CommandContext(c.Context(), "/proc/self/exe")
	inner.Args = os.Args
	inner.Env = append(os.Environ(), variable+"=1")
	inner.Stdout, inner.Stderr = e.Stdout, e.Stderr
	inner.Cancel = func() error { return inner.Process.Signal(os.Interrupt) }
	inner.WaitDelay = 30 * time.Second // time for its cleanup
	inner.SysProcAttr = attr
	err := inner.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return cli.ErrFailed // it has printed the error
	}
	return err
}
