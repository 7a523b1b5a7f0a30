package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// WatchedError says that another process watches the instance already.
type WatchedError struct{ Process int } // its number, 0 when that cannot be told

func (e *WatchedError) Error() string {
	if e.Process == 0 {
		return "another daemon runs for this instance"
	}
	return fmt.Sprintf("another daemon runs for this instance: process %d", e.Process)
}

// Hint is what to do.
func (e *WatchedError) Hint() string {
	return "one is enough; end it first if this one is to take its place"
}

// watchName is the name of a socket that who watches holds. It is not in the file system, belongs to the network
// namespace as the instance does, and goes with the process, however that ends.
func (in Instance) watchName() string { return "@floodwall" + filepath.Clean(in.Dir) }

// listen makes this process the one that watches, until the socket is closed.
func (in Instance) listen() (net.Listener, error) {
	l, err := net.Listen("unix", in.watchName())
	if errors.Is(err, unix.EADDRINUSE) {
		e := &WatchedError{}
		if holder, err := in.watcher(); err == nil {
			e.Process = int(holder.Pid)
		}
		return nil, e
	}
	if err != nil {
		return nil, fmt.Errorf("socket of the daemon: %w", err)
	}
	go func() { // connections that nobody takes would fill the queue
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l, nil
}

// watched reports whether a process of this user, or of root, watches the instance: anybody can take the name.
func (in Instance) watched() bool {
	holder, err := in.watcher()
	return err == nil && (holder.Uid == 0 || int(holder.Uid) == os.Geteuid())
}

// watcher is the process that holds the socket.
func (in Instance) watcher() (*unix.Ucred, error) {
	c, err := net.Dial("unix", in.watchName())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var holder *unix.Ucred
	var told error
	err = raw.Control(func(fd uintptr) {
		holder, told = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return holder, errors.Join(err, told)
}
