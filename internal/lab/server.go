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

// Dial opens a connection from the host to an address. Without a host, it does from where this process is.
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
		_, _ = w.Write(file) // a client that went away is the client's business
	})
	s.http.ReadTimeout, s.http.IdleTimeout = 30*time.Second, time.Minute
	s.http.ErrorLog = log.New(io.Discard, "", 0) // what goes wrong shows at the client
	return s
}

// Close ends the server and its connections at once. It may be called more than once.
func (s *Server) Close() error { return s.stop() }
