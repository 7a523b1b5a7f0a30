package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/floodwall/floodwall/internal/api/listen"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/operate"
)

// watchTop begins to watch what comes. Where the policy has samples taken for the daemon and one runs, the daemon has them, and is asked:
// next asks it each time. It looks itself otherwise.
func (e *env) watchTop(ctx context.Context, h operate.Host, span time.Duration) (next func(context.Context, time.Duration) (*operate.Top, error), end func() error, err error) {
	settings, err := h.DaemonSettings(ctx)
	if err != nil {
		return nil, nil, err
	}
	socket := filepath.Join(listen.Dir(e.bpffs, datapath.DefaultDir), listen.ReadSocket)
	if settings.Sample > 0 && answers(socket) {
		return func(ctx context.Context, span time.Duration) (*operate.Top, error) {
			return askTop(ctx, socket, span)
		}, func() error { return nil }, nil
	}
	w, err := h.Watch(ctx, span)
	if err != nil {
		return nil, nil, err
	}
	return w.Next, w.Close, nil
}

// answers reports whether somebody listens on a unix socket.
func answers(socket string) bool {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// mostAnswer is how much of an answer is read, in bytes.
const mostAnswer = 16 << 20

// askTop asks the daemon what comes in some time.
func askTop(ctx context.Context, socket string, span time.Duration) (*operate.Top, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://floodwall/v1/top?for="+fmt.Sprintf("%dms", span.Milliseconds()), nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the daemon: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		var problem struct{ Error string }
		json.NewDecoder(io.LimitReader(answer.Body, mostAnswer)).Decode(&problem)
		return nil, fmt.Errorf("asking the daemon: status %d: %s", answer.StatusCode, problem.Error)
	}
	var t operate.Top
	if err := json.NewDecoder(io.LimitReader(answer.Body, mostAnswer)).Decode(&t); err != nil {
		return nil, fmt.Errorf("asking the daemon: %w", err)
	}
	return &t, nil
}
