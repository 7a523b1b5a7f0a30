// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/lab"
)

// The longest times to wait for the daemon. After such a time, the machine is too busy, and the demonstration continues without the daemon.
const (
	startWait = 10 * time.Second // until the daemon answers
	seeWait   = 15 * time.Second // until the daemon has detected the attack, which takes 5 s
	overWait  = 15 * time.Second // until the daemon has detected the end, which takes 3 s
	endWait   = 5 * time.Second  // until the daemon ends by itself
	lookEvery = 50 * time.Millisecond
)

// The daemon's files, in the file system for files.
const (
	runDir    = "run"
	stateDir  = "state"
	logFile   = "daemon.log"
	socketEnd = runDir + "/read.sock"
)

// The paths by which the daemon accesses the two file systems. Their file descriptors follow the standard ones.
const (
	daemonFiles = "/proc/self/fd/3"
	daemonBPF   = "/proc/self/fd/4/floodwall"
)

// watch is the process `floodwall daemon` on the server, and its page on this machine. A nil watch is valid and has no data.
type watch struct {
	files string // the directory of its files, for this process
	store attack.Store
	page  *page

	daemon *lab.Process
}

// watch starts the daemon as a separate process, and waits until it answers.
func (s *scene) watch(ctx context.Context, program string) (w *watch, err error) {
	files := s.mounts[0].Name()
	w = &watch{files: files, store: attack.InState(filepath.Join(files, stateDir), daemonBPF, datapath.DefaultDir)}
	out, err := os.Create(filepath.Join(files, logFile))
	if err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	defer out.Close()
	c := exec.Command(program, "daemon", "--bpffs", daemonBPF, "--state", filepath.Join(daemonFiles, stateDir), "--run", filepath.Join(daemonFiles, runDir))
	c.Args[0] = "floodwall"
	c.Stdout, c.Stderr, c.ExtraFiles = out, out, s.mounts
	// The daemon has mounts of its own. So its lock file (internal/os/instance) is in memory.
	if w.daemon, err = s.host().Start(c, lab.PrivateRun); err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	if w.page, err = servePage(filepath.Join(files, socketEnd)); err != nil {
		w.close()
		return nil, err
	}
	w.await(ctx, startWait, w.answers)
	return w, nil
}

// await calls is repeatedly until is returns true or the time is over. It gives up when the daemon or ctx ends.
func (w *watch) await(ctx context.Context, most time.Duration, is func() bool) {
	late := time.After(most)
	for !is() {
		select {
		case <-ctx.Done():
			return
		case <-w.daemon.Ended:
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

// leastTaught is the minimum number of rates that the daemon needs.
const leastTaught = 10

// teach gives the daemon the packet rates of quiet times. If a policy had run in these times, the daemon would have learned the rates from its own
// counters.
func (w *watch) teach(rates []float64) error {
	if w == nil || len(rates) == 0 {
		return nil // no client got the CPU, so the daemon learns after the policy is applied
	}
	for n := len(rates); len(rates) < leastTaught; {
		rates = append(rates, rates[len(rates)-n])
	}
	return w.store.Teach(rates)
}

// seen waits until the daemon has detected the attack.
func (w *watch) seen(ctx context.Context) {
	if w != nil {
		w.await(ctx, seeWait, func() bool { return w.report() != nil })
	}
}

// over waits until the daemon has detected the end of the attack. It returns the daemon's report, or nil if there is no report.
func (w *watch) over(ctx context.Context) *attack.Report {
	if w == nil || w.report() == nil {
		return nil
	}
	w.await(ctx, overWait, func() bool { return w.report().Ended != nil })
	return w.report()
}

// report returns the daemon's current report of the attack, or nil if there is none.
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

// complaint returns the reason why the daemon has ended, or "" if the daemon runs.
func (w *watch) complaint() string {
	if w == nil {
		return ""
	}
	select {
	case <-w.daemon.Ended:
	default:
		return ""
	}
	text, _ := os.ReadFile(filepath.Join(w.files, logFile)) // without it the error says less
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Sprintf("%v: %s", w.daemon.ProcessState, lines[len(lines)-1])
}

// close closes the page and ends the daemon. If the daemon does not end by itself, close kills it.
func (w *watch) close() {
	if w.page != nil {
		w.page.close()
	}
	w.daemon.Stop(endWait)
}
