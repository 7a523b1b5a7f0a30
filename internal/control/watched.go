package control

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrWatched says that another process watches the instance already.
var ErrWatched = errors.New("another daemon runs")

// watchName is the name of a socket that who watches holds. It is not in the file system, belongs to the network namespace as the
// instance does, and goes with the process, however that ends.
func (in Instance) watchName() string { return "@floodwall" + filepath.Clean(in.Dir) }

// listen makes this process the one that watches.
func (in Instance) listen() (net.Listener, error) {
	l, err := net.Listen("unix", in.watchName())
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, ErrWatched
	}
	if err != nil {
		return nil, fmt.Errorf("socket of the daemon: %w", err)
	}
	return l, nil
}

// watched reports whether a process watches the instance.
func (in Instance) watched() bool {
	c, err := net.Dial("unix", in.watchName())
	if err != nil {
		return false
	}
	c.Close()
	return true
}
