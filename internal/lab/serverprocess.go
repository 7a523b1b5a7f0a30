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
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		defer listening.Close()
		_, err := h.play(ctx, role{name: serverName, cpu: cpu, priority: priority, input: file, files: []*os.File{listening}})
		if ctx.Err() == nil {
			ended <- fmt.Errorf("http server: %w", errors.Join(errors.New("ended early"), err))
		}
		close(ended)
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	l.onClose(stop)
	return stop, nil
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
