// SPDX-License-Identifier: Apache-2.0

// This file requests samples from the daemon of this host.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/engine/control"
)

// WatchTop starts to observe the traffic. It returns the function next, which returns the traffic of a time span. If the policy takes samples for a
// running daemon, next requests each result from the daemon. If the daemon has no samples, or does not run, next takes samples itself. span is the
// longest time span for which next is called.
func WatchTop(ctx context.Context, h operate.Host, socket string, span time.Duration) (next func(context.Context, time.Duration) (*operate.Top, error), end func() error, err error) {
	settings, err := h.DaemonSettings(ctx)
	if err != nil {
		return nil, nil, err
	}
	status, err := h.Instance.Status(ctx)
	if err != nil {
		return nil, nil, err
	}
	if settings.Sample > 0 && status.Target == plan.TargetXDP && span <= api.MaxLook && answers(socket) {
		return func(ctx context.Context, span time.Duration) (*operate.Top, error) {
			t, err := askTop(ctx, socket, span)
			if err != nil || t.Samples != nil {
				return t, err
			}
			return h.Top(ctx, span)
		}, func() error { return nil }, nil
	}
	w, err := h.Watch(ctx, span)
	if err != nil {
		return nil, nil, err
	}
	return w.Next, w.Close, nil
}

// answers reports whether a process listens on a unix socket.
func answers(socket string) bool {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// mostAnswer is the maximum number of bytes that are read from an answer.
const mostAnswer = 16 << 20

// Samples requests the samples that the policy takes for the daemon. They include dropped packets. Samples returns nil when no policy runs, when the
// policy takes no samples, when the policy is for other devices, or when no daemon answers. The caller must then take samples itself.
func Samples(ctx context.Context, h operate.Host, socket string, devices []string, span time.Duration) *sample.Stream {
	settings, err := h.DaemonSettings(ctx)
	if err != nil || settings.Sample == 0 {
		return nil
	}
	running, err := h.Instance.Status(ctx)
	if err != nil || slices.ContainsFunc(devices, func(name string) bool {
		return !slices.ContainsFunc(running.Devices, func(d control.DeviceStatus) bool { return d.Name == name })
	}) {
		return nil
	}
	answer, err := askDaemon(ctx, socket, "/v1/samples", span)
	if err != nil {
		return nil
	}
	stream, err := sample.NewStream(answer.Body)
	if err != nil {
		return nil
	}
	return stream
}

// sampleAnswerTime is the time that an answer of the daemon may take in addition to the sampling time.
const sampleAnswerTime = 20 * time.Second

// askTop requests the traffic of the next time span from the daemon.
func askTop(ctx context.Context, socket string, span time.Duration) (*operate.Top, error) {
	answer, err := askDaemon(ctx, socket, "/v1/top", span)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var t operate.Top
	if err := json.NewDecoder(io.LimitReader(answer.Body, mostAnswer)).Decode(&t); err != nil {
		return nil, fmt.Errorf("asking the daemon: %w", err)
	}
	return &t, nil
}

// askDaemon sends a request for samples of the next time span to the daemon. The caller must close the body of the answer.
func askDaemon(ctx context.Context, socket, path string, span time.Duration) (*http.Response, error) {
	client := http.Client{Timeout: span + sampleAnswerTime, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://floodwall"+path+"?for="+fmt.Sprintf("%dms", span.Milliseconds()), nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the daemon: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		var problem struct{ Error string }
		json.NewDecoder(io.LimitReader(answer.Body, mostAnswer)).Decode(&problem)
		return nil, fmt.Errorf("asking the daemon: status %d: %s", answer.StatusCode, problem.Error)
	}
	return answer, nil
}
