// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"runtime/debug"
	"time"
)

// daemonGC is the value of GOGC for the daemon: its heap may grow by half between garbage collections. Only 4 MB are in use, so collections are
// cheap. A fleet has many daemons, so their memory counts.
const daemonGC = 50

// startTime is the time that a daemon needs to start and to read its state.
const startTime = 5 * time.Second

// giveUpStart waits for startTime. Then it returns the heap memory to the system that was needed only during the start.
func giveUpStart(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(startTime):
		debug.FreeOSMemory()
	}
}
