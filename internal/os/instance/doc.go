// SPDX-License-Identifier: Apache-2.0

// Package instance has the names of the files of an instance of Floodwall, and the lock that limits an instance to one
// daemon. A host may have several instances. The package stores no state: engine/statedir does.
//
//	release, err := instance.LockOf(bpffs).Acquire(state, sockets) // HeldError: a daemon runs
//	defer release()
package instance
