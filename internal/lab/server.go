// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Listen opens a TCP listener in the host.
func (h *Host) Listen(addr netip.AddrPort) (l net.Listener, err error) {
	err = h.Do(func() (err error) {
		l, err = net.Listen("tcp", addr.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", h.Name, err)
	}
	return l, nil
}

// Dial opens a connection from the host to an address. Without a host, it uses the namespace of this process.
func (h *Host) Dial(ctx context.Context, network string, to netip.AddrPort) (c net.Conn, err error) {
	var d net.Dialer
	if h == nil {
		return d.DialContext(ctx, network, to.String())
	}
	// With one numeric address, the dialer makes the socket on the calling goroutine.
	err = h.Do(func() (err error) {
		c, err = d.DialContext(ctx, network, to.String())
		return err
	})
	return c, err
}

// Server is an HTTP server in a host that answers every request with the same file.
type Server struct {
	http     http.Server
	requests atomic.Uint64
	stop     func() error
}

// NewServer starts a server. It stops with the lab, or when it is closed.
func (l *Lab) NewServer(h *Host, addr netip.AddrPort, file []byte) (*Server, error) {
	listener, err := h.Listen(addr)
	if err != nil {
		return nil, fmt.Errorf("http server: %w", err)
	}
	s := newServer(file)
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(listener) }()
	s.stop = sync.OnceValue(func() error {
		err := s.http.Close()
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	})
	l.onClose(s.Close)
	return s, nil
}

// newServer returns a server that does not serve yet.
func newServer(file []byte) *Server {
	s := &Server{}
	s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.requests.Add(1)
		w.Header().Set("Content-Type", "application/byte-stream")
		_, _ = w.Write(file) // fails if the client has closed the connection
	})
	s.http.ReadTimeout, s.http.IdleTimeout = 30*time.Second, time.Minute
	s.http.ErrorLog = log.New(io.Discard, "", 0) // the client reports errors
	return s
}

// Close ends the server and its connections immediately. It may be called more than once.
func (s *Server) Close() error { return s.stop() }

// serverName is the name under which this program runs as a process of an HTTP server.
const serverName = "floodwall-server"

// serverFile is the descriptor of the listener in this process: the first after the standard ones.
const serverFile = 3

// serverMain does the work of the process of a server, until it is killed.
func serverMain() error {
	var file []byte
	if err := readInput(&file); err != nil {
		return err
	}
	listening := os.NewFile(serverFile, "listener")
	listener, err := net.FileListener(listening)
	listening.Close()
	if err != nil {
		return err
	}
	return newServer(file).http.Serve(listener)
}

// NewServerProcess starts a server like NewServer, but in a separate process, on one CPU with one of the priorities. The server ends with the lab, or
// when stop is called. stop returns the server's error.
func (l *Lab) NewServerProcess(h *Host, addr netip.AddrPort, file []byte, cpu, priority int) (stop func() error, err error) {
	listening, err := h.listenFile(addr)
	if err != nil {
		return nil, fmt.Errorf("http server: %w", err)
	}
	return l.serve(h, "http server", listening, role{name: serverName, cpu: cpu, priority: priority, input: file}), nil
}

// serve starts a process that gets a file. The process runs until the lab or stop ends it; stop returns its error.
func (l *Lab) serve(h *Host, what string, file *os.File, r role) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	r.files = []*os.File{file}
	go func() {
		defer file.Close()
		err := h.play(ctx, r)
		if ctx.Err() == nil {
			ended <- fmt.Errorf("%s: %w", what, errors.Join(errors.New("ended early"), err))
		}
		close(ended)
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	l.onClose(stop)
	return stop
}

// listenFile opens a TCP listener in the host, as a file to pass to a process.
func (h *Host) listenFile(addr netip.AddrPort) (*os.File, error) {
	listener, err := h.Listen(addr)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	return listener.(*net.TCPListener).File()
}
