// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"debug/elf"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// daemonGC is the value of GOGC for the daemon: its heap may grow by half between garbage collections. Only 4 MB are in use, so collections are
// cheap. A fleet has many daemons, so their memory counts.
const daemonGC = 50

// startTimes are the times that a daemon needs to start and to read its state, on an idle machine and on a busy one.
var startTimes = []time.Duration{5 * time.Second, time.Minute}

// giveUpStart waits for each of startTimes. Then it returns the memory to the system that was needed only during the start: that of the heap, and
// pages of the program's file.
func giveUpStart(ctx context.Context) {
	began := time.Now()
	for _, t := range startTimes {
		select {
		case <-ctx.Done():
			return
		case <-time.After(t - time.Since(began)):
			debug.FreeOSMemory()
			giveUpFile()
		}
	}
}

// giveUpFile unmaps the pages of the program's file that nothing writes to: code, constants and tables. The kernel maps a page again when it is used;
// until memory is short, the page cache has it. The start uses most of the file, and a daemon at rest less. An error loses nothing.
func giveUpFile() {
	file, err := elf.Open("/proc/self/exe")
	if err != nil {
		return
	}
	defer file.Close()
	for _, p := range file.Progs {
		// In a position-independent program the loader writes to segments before it makes them read-only.
		if file.Type == elf.ET_EXEC && p.Type == elf.PT_LOAD && p.Flags&elf.PF_W == 0 {
			start := uintptr(p.Vaddr) &^ uintptr(os.Getpagesize()-1)
			unix.Syscall(unix.SYS_MADVISE, start, uintptr(p.Vaddr+p.Memsz)-start, unix.MADV_DONTNEED)
		}
	}
}
