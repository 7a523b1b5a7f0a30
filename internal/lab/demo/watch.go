package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// How long the demonstration waits for the daemon. It goes on without it after that: the machine is busy.
const (
	startWait = 10 * time.Second // until it answers
	seeWait   = 15 * time.Second // until it has seen the attack, which takes it 5 s
	overWait  = 15 * time.Second // until it has seen the end, which takes it 3 s
	endWait   = 5 * time.Second  // until it ends by itself
	lookEvery = 50 * time.Millisecond
)

// Files of the daemon in the file system for files.
const (
	runDir    = "run"
	stateDir  = "state"
	logFile   = "daemon.log"
	socketEnd = runDir + "/read.sock"
)

// What the daemon calls the two file systems. It gets their descriptors after the standard ones.
const (
	daemonFiles = "/proc/self/fd/3"
	daemonBPF   = "/proc/self/fd/4/floodwall"
)

// watch is `floodwall daemon` on the server, and its page on this machine. A nil watch has seen nothing.
type watch struct {
	files string // the directory of its files, for this process
	store attack.Store
	cmd   *exec.Cmd
	ended chan struct{}
	page  *page
}

// watch starts the daemon as a process of its own, and waits until it answers.
func (s *scene) watch(ctx context.Context, program string) (w *watch, err error) {
	files := s.mounts[0].Name()
	w = &watch{files: files, store: attack.InState(filepath.Join(files, stateDir), daemonBPF, datapath.DefaultDir), ended: make(chan struct{})}
	out, err := os.Create(filepath.Join(files, logFile))
	if err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	defer out.Close()
	w.cmd = exec.Command(program, "daemon", "--bpffs", daemonBPF, "--state", filepath.Join(daemonFiles, stateDir), "--run", filepath.Join(daemonFiles, runDir))
	w.cmd.Args[0] = "floodwall"
	w.cmd.Stdout, w.cmd.Stderr, w.cmd.ExtraFiles = out, out, s.mounts
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setsid: true} // Ctrl-C is for the demonstration, which ends it
	started := make(chan error)
	go w.run(func() error { return s.host().Do(w.cmd.Start) }, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	if w.page, err = servePage(filepath.Join(files, socketEnd)); err != nil {
		w.close()
		return nil, err
	}
	w.await(ctx, startWait, w.answers)
	return w, nil
}

// run starts the daemon on a thread that has mounts of its own, where the lock of the daemon (internal/os/instance) is a file in memory. The
// kernel kills the daemon with this thread (prctl(2), PR_SET_PDEATHSIG), which ends after it.
func (w *watch) run(start func() error, started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	err := privateRun()
	if err == nil {
		err = start()
	}
	started <- err
	if err == nil {
		_ = w.cmd.Wait() // see complaint
		close(w.ended)
	}
}

// privateRun gives the calling thread an empty /run that nobody else sees.
func privateRun() error {
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

// await looks again and again until something is so, for a time. It gives up when the daemon or ctx ends.
func (w *watch) await(ctx context.Context, most time.Duration, is func() bool) {
	late := time.After(most)
	for !is() {
		select {
		case <-ctx.Done():
			return
		case <-w.ended:
			return
		case <-late:
			return
		case <-time.After(lookEvery):
		}
	}
}

func (w *watch) answers() bool {
	c, err := net.Dial("unix", filepath.Join(w.files, socketEnd))
	if err == nil {
		c.Close()
	}
	return err == nil
}

// leastTaught is how many rates the daemon needs.
const leastTaught = 10

// teach tells the daemon how many packets came in quiet times. It would learn them from its own counters if a policy had run then.
func (w *watch) teach(rates []float64) error {
	if w == nil || len(rates) == 0 {
		return nil // no client got the CPU: the daemon learns after the policy is applied
	}
	for n := len(rates); len(rates) < leastTaught; {
		rates = append(rates, rates[len(rates)-n])
	}
	return w.store.Teach(rates)
}

// seen waits until the daemon has seen the attack.
func (w *watch) seen(ctx context.Context) {
	if w != nil {
		w.await(ctx, seeWait, func() bool { return w.report() != nil })
	}
}

// over waits until the daemon has seen the end of the attack, and returns its report: nil if it has seen nothing.
func (w *watch) over(ctx context.Context) *attack.Report {
	if w == nil || w.report() == nil {
		return nil
	}
	w.await(ctx, overWait, func() bool { return w.report().Ended != nil })
	return w.report()
}

// report is what the daemon has written of the attack so far: nil if nothing.
func (w *watch) report() *attack.Report {
	list, err := w.store.List()
	if err != nil || len(list) == 0 {
		return nil
	}
	r, err := w.store.Report(list[0].ID)
	if err != nil {
		return nil
	}
	return r
}

// complaint is why the daemon has ended, "" when it goes on as it should.
func (w *watch) complaint() string {
	if w == nil {
		return ""
	}
	select {
	case <-w.ended:
	default:
		return ""
	}
	text, _ := os.ReadFile(filepath.Join(w.files, logFile)) // without it less is said
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Sprintf("%v: %s", w.cmd.ProcessState, lines[len(lines)-1])
}

// close ends the page and the daemon. A daemon that does not end by itself is killed.
func (w *watch) close() {
	if w.page != nil {
		w.page.close()
	}
	if err := w.cmd.Process.Signal(unix.SIGTERM); errors.Is(err, os.ErrProcessDone) {
		return
	}
	select {
	case <-w.ended:
	case <-time.After(endWait):
		_ = w.cmd.Process.Kill() // it may just have ended
		<-w.ended
	}
}
