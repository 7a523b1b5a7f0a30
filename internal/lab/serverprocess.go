package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
)

// serverName is what this program is called as a process that is an HTTP server.
const serverName = "floodwall-server"

// serverFile is the descriptor of the listener in that process: the first after the standard ones.
const serverFile = 3

// serverMain is all that the process of a server does, until it is killed.
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

// NewServerProcess starts a server as NewServer does, in a process of its own that stays on one CPU with one of the
// priorities. It ends with the lab, or when the returned function is called, which returns what went wrong.
func (l *Lab) NewServerProcess(h *Host, addr netip.AddrPort, file []byte, cpu, priority int) (stop func() error, err error) {
	listening, err := h.listenFile(addr)
	if err != nil {
		return nil, fmt.Errorf("http server: %w", err)
	}
	return l.serve(h, "http server", listening, role{name: serverName, cpu: cpu, priority: priority, input: file}), nil
}

// serve starts a process that has a file until it is stopped, by the lab or by the returned function, which returns what went wrong.
func (l *Lab) serve(h *Host, what string, file *os.File, r role) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	r.files = []*os.File{file}
	go func() {
		defer file.Close()
		_, err := h.play(ctx, r)
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

// listenFile opens a TCP listener in the host, as a file to hand to a process.
func (h *Host) listenFile(addr netip.AddrPort) (*os.File, error) {
	listener, err := h.Listen(addr)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	return listener.(*net.TCPListener).File()
}
