// SPDX-License-Identifier: Apache-2.0

// This file serves the API on sockets. In: a directory, and an API server (server.go). Out: the sockets read.sock and control.sock in that directory,
// with the API on them. This file limits the connections of clients, and the times that clients may take. The other files of the package answer the
// requests.
//
// sockets.go makes the two sockets, conns.go limits connections.

package api

import (
	"bytes"
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/policy"
)

// How long a client may take to send a request. The API limits the time to receive an answer.
const (
	headerTime = 5 * time.Second
	bodyTime   = 15 * time.Second
	idleTime   = 30 * time.Second
	maxHeader  = 16 << 10 // bytes
)

// endWait is how long running answers may take when the daemon ends.
const endWait = time.Second

// Serve serves an API on the sockets of a directory, until ctx ends.
//
// It also serves the routes for reading on the TCP address in settings, if settings contains one.
func Serve(ctx context.Context, dir string, a *Server, settings func(context.Context) (policy.Daemon, error)) error {
	s, err := openSockets(dir)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.note != "" {
		a.Warn(s.note)
	}
	a.Note("serving " + filepath.Join(dir, ReadSocket) + " and " + filepath.Join(dir, ControlSocket))
	ended := make(chan error, 2)
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { follow(ctx, settings, a) })
	following.Go(func() { a.Keep(ctx) })
	go func() { ended <- serve(ctx, s.read, noDomain(a.Handler(FromReadSocket))) }()
	go func() { ended <- serve(ctx, s.control, noDomain(a.Handler(FromControlSocket))) }()
	err = <-ended
	cancel()
	return errors.Join(err, <-ended)
}

// serve answers on a listener until ctx ends.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       bodyTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ConnState:         newConns().changed,
		ErrorLog:          log.New(defects{}, "", 0),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			uid, pid, _ := sockets.Peer(c) // -1 and 0 when unknown
			return WithPeer(ctx, Peer{UID: uid, PID: pid})
		},
	}
	stop := context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
		defer cancel()
		if server.Shutdown(ending) != nil {
			server.Close()
		}
	})
	defer stop()
	err := server.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// defects logs errors of the daemon itself. It drops errors that clients cause, because these could fill the log.
type defects struct{}

func (defects) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("panic serving")) {
		os.Stderr.Write(p)
	}
	return len(p), nil
}
