// SPDX-License-Identifier: Apache-2.0

// This file creates Unix sockets with a path, and identifies the process at their other end.

package sockets

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// suffix is appended to the name of a new socket until it is ready.
const suffix = ".new"

// LongestPath is the largest length of a socket's path in bytes: the size of sun_path in unix(7), minus the final zero and the suffix.
const LongestPath = 107 - len(suffix)

// Listen creates a Unix socket that belongs to a group. The gid -1 means this process's own group. The socket gets its permissions under a temporary
// name. Then it is renamed, which atomically replaces an existing file, such as the socket of a killed process. Two processes must not create the
// same socket at the same time. Closing the listener does not remove the file.
func Listen(path string, mode os.FileMode, gid int) (net.Listener, error) {
	next := path + suffix
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: next, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // the file has been renamed by then
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

// Peer returns the user ID and the PID of the process at the other end of a Unix socket (SO_PEERCRED in unix(7)). A server gets the process that has
// connected. A client gets the process that listens. For other kinds of sockets, Peer returns an error, and -1 and 0.
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
