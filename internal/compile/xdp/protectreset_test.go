// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestForgedEnd plays an attacker who forges the end of a connection that a socket has. The attacker also uses up the lookups in the kernel with ACKs
// that belong to no connection. After minutes without packets, packets of the connection must still pass. An end with the sequence number that the
// socket expects must count, so that closed connections leave the table.
func TestForgedEnd(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		for _, flags := range []string{"R", "R.", "F."} {
			t.Run(host+" "+flags, func(t *testing.T) {
				defer testutil.OnOneCPU(t)()
				s := shieldOf(t, protecting(always()))
				client, server := connected(t, host)
				tuple := fmt.Sprintf("tcp %s > %s", client.LocalAddr(), client.RemoteAddr())
				expected := expects(t, server)
				s.must(xdpPass, "asked 1", "%s .", tuple)
				s.must(xdpPass, "asked 1", "%s %s seq=%d", tuple, flags, expected-1)
				s.must(xdpPass, "asked 1", "%s %s seq=%d", tuple, flags, expected+1)
				s.now += 130 * time.Second
				forged := subject.FramesOf(t, fmt.Sprintf("tcp %s > %s .", address(host, 9), client.RemoteAddr()))[0].Frame
				for range 3000 {
					s.send(forged)
				}
				s.must(xdpPass, "asked 1", "%s .", tuple)

				s.must(xdpPass, "asked 1", "%s %s seq=%d", tuple, flags, expected)
				s.must(xdpPass, "", "%s .", tuple)
				s.now += 130 * time.Second
				for range 3000 {
					s.send(forged)
				}
				s.must(xdpDrop, "invalid 1", "%s .", tuple)
			})
		}
	}
}

// TestForgedEndFlood forges more ends of a connection than the number of lookups that the kernel allows. None of them may close the connection.
func TestForgedEndFlood(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	defer testutil.OnOneCPU(t)()
	s := shieldOf(t, protecting(always()))
	client, server := connected(t, "127.0.0.1")
	tuple := fmt.Sprintf("tcp %s > %s", client.LocalAddr(), client.RemoteAddr())
	s.must(xdpPass, "asked 1", "%s .", tuple)
	reset := subject.FramesOf(t, fmt.Sprintf("%s R seq=%d", tuple, expects(t, server)+1000))[0].Frame
	stranger := subject.FramesOf(t, fmt.Sprintf("tcp 127.0.0.1:9 > %s .", client.RemoteAddr()))[0].Frame
	for range 3000 {
		s.send(reset)
		s.send(stranger)
	}
	s.now += 130 * time.Second
	for range 3000 {
		s.send(stranger)
		s.send(reset)
	}
	s.must(xdpPass, "", "%s .", tuple)
}

// TestEndBeforeItsData sends a FIN to XDP before the kernel has the data that precedes the FIN. Then it sends the data again. This happens on a busy
// machine, or on a path that reorders packets. The connection must leave the table when it ends.
func TestEndBeforeItsData(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			defer testutil.OnOneCPU(t)()
			s := shieldOf(t, protecting(always()))
			client, server := connected(t, host)
			tuple := fmt.Sprintf("tcp %s > %s", client.LocalAddr(), client.RemoteAddr())
			expected := expects(t, server)
			s.must(xdpPass, "asked 1", "%s .", tuple)
			s.must(xdpPass, "asked 1", "%s F. seq=%d", tuple, expected+3)
			s.must(xdpPass, "asked 1", "%s P. seq=%d", tuple, expected)
			if _, err := client.Write([]byte("bye")); err != nil {
				t.Fatal(err)
			}
			if err := client.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(server); string(got) != "bye" || err != nil {
				t.Fatalf("the server got %q, %v", got, err)
			}
			s.must(xdpPass, "asked 1", "%s . seq=%d", tuple, expected+4)
			s.must(xdpPass, "", "%s . seq=%d", tuple, expected+4)

			// The program does not ask the kernel again about a connection that continues.
			client, server = connected(t, host)
			tuple = fmt.Sprintf("tcp %s > %s", client.LocalAddr(), client.RemoteAddr())
			s.must(xdpPass, "asked 1", "%s .", tuple)
			s.must(xdpPass, "asked 1", "%s F. seq=%d", tuple, expects(t, server)+3)
			s.now += 9 * time.Second
			s.must(xdpPass, "asked 1", "%s .", tuple)
			s.must(xdpPass, "", "%s .", tuple)
		})
	}
}

// connected opens a connection to a listener of its own.
func connected(t *testing.T, host string) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

// expects returns the sequence number that a socket expects next.
func expects(t *testing.T, c net.Conn) (seq uint32) {
	t.Helper()
	const receive = 1 // TCP_RECV_QUEUE of include/net/tcp.h
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	control := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_ON)
		err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR_QUEUE, receive))
		n, failed := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
		seq = uint32(n)
		err = errors.Join(err, failed, unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_OFF_NO_WP))
	})
	if err := errors.Join(err, control); err != nil {
		t.Fatal(err)
	}
	return seq
}
