// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a command that runs in a host. It ends with this process at the latest.
type Process struct {
	*exec.Cmd
	Ended chan struct{} // closed with Err set
	Err   error

	stderr bytes.Buffer
}

// Start starts a command in the host. The thread that starts it first calls begin, which may pin the thread or give it mounts; nil: nothing. The
// kernel kills the command with this thread (prctl(2), PR_SET_PDEATHSIG), so the thread waits for it. The command has a session of its own: Ctrl-C
// is for this process, which ends the command.
func (h *Host) Start(c *exec.Cmd, begin func() error) (*Process, error) {
	p := &Process{Cmd: c, Ended: make(chan struct{})}
	if c.Stderr == nil {
		c.Stderr = &p.stderr
	}
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Pdeathsig, c.SysProcAttr.Setsid = syscall.SIGKILL, true
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var err error
		if begin != nil {
			err = begin()
		}
		if err == nil {
			err = h.Do(c.Start)
		}
		started <- err
		if err == nil {
			p.Err = c.Wait()
			close(p.Ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Wait waits until the command ends.
func (p *Process) Wait() error {
	<-p.Ended
	return p.Err
}

// Stop ends the command by SIGTERM. It kills a command that does not end within patience, and returns true then.
func (p *Process) Stop(patience time.Duration) (killed bool) {
	_ = p.Process.Signal(unix.SIGTERM) // fails if it has ended
	select {
	case <-p.Ended:
		return false
	case <-time.After(patience):
		p.Kill()
		return true
	}
}

// Kill kills the command, and returns when it has ended.
func (p *Process) Kill() {
	_ = p.Process.Kill() // fails if it has ended
	<-p.Ended
}

// Complaint returns the error messages of a command that has ended.
func (p *Process) Complaint() string { return strings.TrimSpace(p.stderr.String()) }

// PrivateRun gives the calling thread mounts of its own, with an empty /run that nobody else sees.
func PrivateRun() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("an empty /run: %w", err)
	}
	return nil
}
