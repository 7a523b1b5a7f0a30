// Package instance names the files of an instance of Floodwall, of which a host may have several, and has the lock by
// which an instance has one daemon at most. It keeps no state: that is engine/statedir.
//
//	release, err := instance.LockOf(bpffs).Acquire(state, sockets) // HeldError: a daemon runs
//	defer release()
package instance
