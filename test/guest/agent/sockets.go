package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// sockets receive as an application does, at any address of the machine and in both families.
type sockets struct {
	mu       sync.Mutex
	received map[string]int // by port and text
}

func (s *sockets) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.received)
}

// count notes what was received at a port. Zeros are what a short frame is filled up with.
func (s *sockets) count(port string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received[port+" "+string(bytes.TrimRight(data, "\x00"))]++
}

// listen opens sockets at ports: "udp/53", "tcp/80".
func (s *sockets) listen(ports []string) error {
	for _, port := range ports {
		proto, number, _ := strings.Cut(port, "/")
		var err error
		if proto == "udp" {
			err = s.listenUDP(port, ":"+number)
		} else {
			err = s.listenTCP(port, ":"+number)
		}
		if err != nil {
			return fmt.Errorf("listening at %s: %w", port, err)
		}
	}
	return nil
}

// config has space for what comes while the machine is slow. A socket that takes MPTCP is given no connection that a program
// has proved.
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

// listenTCP counts the connections, as text "", and what each sends first, which it sends back.
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
