// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts a command. The command ends with this process, even if this process is killed. The caller must call cmd.Wait. The kernel kills the
// command when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG). So that thread waits for the end of the command. Otherwise another
// goroutine could use the thread and end it.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		pid := 0
		if err == nil {
			pid = cmd.Process.Pid
		}
		started <- err
		for err == nil {
			// With WNOWAIT, the process stays for cmd.Wait. If cmd.Wait was faster, the child no longer exists.
			if err = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err == nil {
				return
			} else if err == unix.EINTR {
				err = nil
			}
		}
	}()
	return <-started
}
