package main

import (
	"context"
	"runtime/debug"
	"time"
)

// daemonGC has the daemon's heap grow by half between collections: 4 MB are in use, so collections are cheap, and hosts have many daemons.
const daemonGC = 50

// startTime is how long a daemon takes to start, and to take in what there is.
const startTime = 5 * time.Second

// giveUpStart gives back the memory of the heap that only the start of a daemon needed.
func giveUpStart(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(startTime):
		debug.FreeOSMemory()
	}
}
