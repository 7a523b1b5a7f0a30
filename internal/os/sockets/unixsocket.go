// This file makes unix sockets of files, and says which process is at their other end.

package sockets

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// suffix ends the name of a socket that is being made.
const suffix = ".new"

// LongestPath is how many bytes the path of a socket may have: sun_path in unix(7), less its final zero and the end of the name of a socket
// that is being made.
const LongestPath = 107 - len(suffix)

// Listen makes a socket of a group, -1 for this process's own. The socket has its rights before it has its name, and replaces in one step
// what has the name, such as the socket of a killed process. Two processes must not make the same socket at once. Closing the listener
// leaves the file.
func Listen(path string, mode os.FileMode, gid int) (net.Listener, error) {
	next := path + suffix
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: next, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // it has another name then
	err = os.Chmod(next, mode)
	if err == nil && gid >= 0 {
		err = os.Lchown(next, -1, gid)
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		l.Close()
		os.Remove(next)
		return nil, fmt.Errorf("socket: %w", err)
	}
	return l, nil
}

// Peer is the user and the process at the other end of a unix socket (SO_PEERCRED in unix(7)): who connected, or for who connected, the
// process that listens. With an error, as for other sockets, they are -1 and 0.
func Peer(c net.Conn) (uid, pid int, err error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return -1, 0, errors.New("not a unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return -1, 0, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, credErr); err != nil {
		return -1, 0, err
	}
	return int(cred.Uid), int(cred.Pid), nil
}
