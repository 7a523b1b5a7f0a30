// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Arrives reports whether a packet arrives at a socket within a time. It removes the packet from the socket, as Receive does.
func Arrives(t testing.TB, socket *net.UDPConn, wait time.Duration) bool {
	t.Helper()
	_, _, ok := Receive(t, socket, wait)
	return ok
}

// Receive receives a packet from a socket, and waits at most for the time wait. After a deadline, Go returns an error without asking the kernel. On a
// busy machine this happens even if a packet is in the socket. So Receive asks the kernel at the end.
func Receive(t testing.TB, socket *net.UDPConn, wait time.Duration) (payload []byte, from netip.AddrPort, ok bool) {
	t.Helper()
	payload = make([]byte, 2048)
	socket.SetReadDeadline(time.Now().Add(wait))
	n, from, err := socket.ReadFromUDPAddrPort(payload)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if !readable(t, socket) {
			return nil, from, false
		}
		socket.SetReadDeadline(time.Time{})
		n, from, err = socket.ReadFromUDPAddrPort(payload)
	}
	if err != nil {
		t.Fatal(err)
	}
	return payload[:n], from, true
}

// readable reports whether a socket has a packet in its queue.
func readable(t testing.TB, socket *net.UDPConn) bool {
	t.Helper()
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var asked error
	err = raw.Control(func(fd uintptr) {
		_, _, asked = unix.Recvfrom(int(fd), nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	if errors.Is(asked, unix.EAGAIN) {
		return false
	}
	if err = errors.Join(err, asked); err != nil {
		t.Fatal(err)
	}
	return true
}
