// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestStalls makes a process with a higher priority than the watch use a CPU. This must be reported as one stall of the CPU, with its length and the
// name of the process.
func TestStalls(t *testing.T) {
	testutil.RequireRoot(t)
	const least = 10 * time.Millisecond
	l, err := New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	host, err := l.Host("host")
	if err != nil {
		t.Fatal(err)
	}
	w, err := host.WatchStalls(t.Context(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	var seen []Stall
	held := func() (sum time.Duration) { // other threads with an even higher priority may split it
		from, errFrom := Now()
		errHeld := keep(1)
		to, errTo := Now()
		if err := errors.Join(errFrom, errHeld, errTo); err != nil {
			t.Fatal(err)
		}
		seen = w.Between(from, to)
		for _, s := range seen {
			if s.CPU == 1 && s.Holder == holderName && s.Waited <= s.Late {
				sum += s.Waited
			}
		}
		return sum
	}
	if !testutil.Eventually(20*time.Second, func() bool { return held() >= least }) { // a hypervisor may take the CPU away meanwhile
		t.Errorf("no stall of CPU 1 of %v by %s, among %+v", least, holderName, seen)
	}
	if early := w.Between(0, 1); len(early) > 0 {
		t.Errorf("stalls before all began: %+v", early)
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
}

// holderName is the kernel's name of a process that has a CPU for some 20 ms or more. holding is its role.
const (
	holderName = "sh"
	holding    = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
)

// keep makes a process use a CPU for a while, with a higher priority than all watches. A thread of this program could not do this: Go's runtime
// preempts its goroutine, and makes it wait for other threads of the program, which a busy machine may not run.
func keep(cpu int) error {
	out, err := exec.Command("chrt", "-f", fmt.Sprint(MostUrgent+1), "taskset", "-c", fmt.Sprint(cpu), "sh", "-c", holding).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
