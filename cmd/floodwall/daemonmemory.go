package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// daemonGC has the daemon's heap grow by half between collections: 4 MB are in use, so collections are cheap, and hosts have many daemons.
const daemonGC = 50

// startTime is how long a daemon takes to start, and to take in what there is.
const startTime = 5 * time.Second

// giveUpStart gives memory back that only the start of a daemon needed: what the heap has free, and pages of the program that the kernel
// has mapped, which is a third of its 50 MB. The kernel maps what is used again from its page cache.
func giveUpStart(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(startTime):
	}
	debug.FreeOSMemory()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return // the memory stays
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		var rights string
		n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights)
		if n == 3 && strings.HasSuffix(strings.TrimSpace(line), self) && !strings.Contains(rights, "w") {
			// The kernel can read these pages again. After an error they stay where they are.
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
		}
	}
}
