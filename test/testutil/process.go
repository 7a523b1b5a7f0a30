package testutil

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts a command that ends with this process, however that ends. The kernel kills it with the thread that started it (prctl(2),
// PR_SET_PDEATHSIG). So that thread waits for the end of the command: another goroutine could take it, and end it. The caller calls cmd.Wait.
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
			// WNOWAIT leaves the process to cmd.Wait. When that was earlier, there is no such child any more.
			if err = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err == nil {
				return
			} else if err == unix.EINTR {
				err = nil
			}
		}
	}()
	return <-started
}
