// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// sockets receive as an application does, at any address of the machine, over IPv4 and IPv6.
type sockets struct {
	mu       sync.Mutex
	received map[string]int // by port and text
}

func (s *sockets) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.received)
}

// count counts a text that was received at a port. It first removes trailing zeros, because short frames are padded with zeros.
func (s *sockets) count(port string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received[port+" "+string(bytes.TrimRight(data, "\x00"))]++
}

// listen opens sockets at ports such as "udp/53", "tcp/80" and "sctp/5000".
func (s *sockets) listen(ports []string) error {
	for _, port := range ports {
		proto, number, _ := strings.Cut(port, "/")
		var err error
		switch proto {
		case "udp":
			err = s.listenUDP(port, ":"+number)
		case "sctp":
			err = listenSCTP(number)
		default:
			err = s.listenTCP(port, ":"+number)
		}
		if err != nil {
			return fmt.Errorf("listening at %s: %w", port, err)
		}
	}
	return nil
}

// config sets a large receive buffer, because packets may arrive while the machine is slow. It turns MPTCP off, because the kernel does not give a
// connection that an XDP program has verified to an MPTCP socket.
var config = func() (c net.ListenConfig) {
	c.SetMultipathTCP(false)
	c.Control = func(_, _ string, conn syscall.RawConn) (err error) {
		controlErr := conn.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20) })
		return cmp.Or(err, controlErr)
	}
	return c
}()

func (s *sockets) listenUDP(port, address string) error {
	socket, err := config.ListenPacket(context.Background(), "udp", address)
	if err != nil {
		return err
	}
	go func() {
		data := make([]byte, 1<<16)
		for {
			n, _, err := socket.ReadFrom(data)
			if err != nil {
				return
			}
			s.count(port, data[:n])
		}
	}()
	return nil
}

// listenTCP counts each connection with the text "". It also counts the first text on the connection, and returns this text.
func (s *sockets) listenTCP(port, address string) error {
	socket, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			s.count(port, nil)
			go func() {
				defer conn.Close()
				data := make([]byte, 1<<16)
				if n, err := conn.Read(data); err == nil {
					s.count(port, data[:n])
					conn.Write(data[:n])
				}
			}()
		}
	}()
	return nil
}

// listenSCTP listens until the agent ends. The kernel accepts the associations.
func listenSCTP(number string) error {
	port, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port}); err != nil {
		return err
	}
	return unix.Listen(fd, 1)
}
