// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/os/sockets"
)

// How long a client may take, and the largest size of a request's header.
const (
	clientTime = 10 * time.Second
	maxHeader  = 16 << 10 // bytes
	endWait    = time.Second
)

// Serve serves the socket in a directory until ctx ends.
func (s *Speaker) Serve(ctx context.Context, dir string) error {
	l, err := listen(dir)
	if err != nil {
		return err
	}
	defer os.Remove(filepath.Join(dir, wire.Socket))
	server := &http.Server{
		Handler: s.handler(), ReadTimeout: clientTime, WriteTimeout: clientTime, IdleTimeout: clientTime, MaxHeaderBytes: maxHeader,
	}
	stop := context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
		defer cancel()
		if server.Shutdown(ending) != nil {
			server.Close()
		}
	})
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// welcome is a listener for root and for this process's user. It closes connections of other users at once.
type welcome struct{ net.Listener }

// Accept waits for a connection.
func (l welcome) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if uid, _, err := sockets.Peer(c); err == nil && (uid == 0 || uid == os.Getuid()) {
			return c, nil
		}
		c.Close()
	}
}

// listen makes the socket. The mode of the socket allows all users, because the daemon's unit runs as root, but without root's right to open files of
// other users. Accept checks the user.
func listen(dir string) (net.Listener, error) {
	l, err := sockets.Listen(filepath.Join(dir, wire.Socket), 0o666, -1)
	if err != nil {
		return nil, err
	}
	return welcome{l}, nil
}

func (s *Speaker) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		st, err := s.Status()
		answer(w, st, err)
	})
	mux.HandleFunc("GET /v1/received", func(w http.ResponseWriter, _ *http.Request) {
		r, err := s.Received()
		answer(w, r, err)
	})
	mux.HandleFunc("PUT /v1/announcements", func(w http.ResponseWriter, r *http.Request) {
		wanted := &wire.Wanted{}
		from := json.NewDecoder(http.MaxBytesReader(w, r.Body, wire.MaxWanted))
		from.DisallowUnknownFields()
		err := from.Decode(wanted)
		if err == nil {
			err = s.Put(wanted)
		}
		st, failed := s.Status()
		answer(w, st, errors.Join(err, failed))
	})
	return mux
}

func answer(w http.ResponseWriter, is any, err error) {
	if err != nil {
		e := &wire.AnswerError{Text: err.Error()}
		var hinted interface{ Hint() string }
		if errors.As(err, &hinted) {
			e.Tip = hinted.Hint()
		}
		refuse(w, http.StatusUnprocessableEntity, e)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(is)
}

func refuse(w http.ResponseWriter, status int, e *wire.AnswerError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(e)
}
