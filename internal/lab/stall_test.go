package lab

import (
	"errors"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestStalls has a thread keep a CPU that goes before the watch: that is a stall, as long as it takes, of that CPU, with who kept it.
func TestStalls(t *testing.T) {
	testutil.RequireRoot(t)
	const hold = 20 * time.Millisecond
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
	held := func() (sum time.Duration) { // what else there is with a greater right to the CPU may cut it in parts
		from, errFrom := Now()
		errHeld := keep(1, hold)
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
	if !testutil.Eventually(20*time.Second, func() bool { return held() >= hold/2 }) { // the machine may be taken away meanwhile
		t.Errorf("no stall of CPU 1 of %v by %s, among %+v", hold, holderName, seen)
	}
	if early := w.Between(0, 1); len(early) > 0 {
		t.Errorf("stalls before all began: %+v", early)
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
}

const holderName = "hold-the-cpu"

// keep has a CPU for a time, before all watches.
func keep(cpu int, hold time.Duration) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		name := []byte(holderName + "\x00")
		err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)
		if err := errors.Join(err, pin(0, cpu), hurry(0, MostUrgent+1)); err != nil {
			done <- err
			return
		}
		for end := time.Now().Add(hold); time.Now().Before(end); {
		}
		done <- nil
	}()
	return <-done
}
