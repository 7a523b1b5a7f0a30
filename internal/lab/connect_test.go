// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// callers are the addresses of the clients of a test.
var callers = netip.MustParsePrefix("10.9.0.0/24")

// newCallers gives a pair's first host the callers' addresses, and the other the way back.
func newCallers(t *testing.T) (p pair, o ConnectOptions) {
	p = newPair(t)
	if err := p.a.Host.Own(callers); err != nil {
		t.Fatal(err)
	}
	if err := p.b.Host.Route(callers, netip.MustParseAddr("10.0.0.1"), p.b); err != nil {
		t.Fatal(err)
	}
	return p, ConnectOptions{
		Host: p.a.Host, Server: netip.MustParseAddrPort("10.0.0.2:80"), Request: []byte("?"),
		From: []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.200")},
		Rate: 1000, Duration: 100 * time.Millisecond, Timeout: 2 * time.Second,
	}
}

// serve has a server give each connection to answer, and counts them by client.
func serve(t *testing.T, h *Host, at netip.AddrPort, answer func(net.Conn)) func() map[netip.Addr]int {
	l, err := h.Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	by := make(map[netip.Addr]int)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			by[conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()]++
			mu.Unlock()
			go answer(conn)
		}
	}()
	t.Cleanup(func() { l.Close() })
	return func() map[netip.Addr]int {
		mu.Lock()
		defer mu.Unlock()
		return by
	}
}

// TestConnect has a server answer every client.
func TestConnect(t *testing.T) {
	p, o := newCallers(t)
	by := serve(t, p.b.Host, o.Server, answerAll)
	o.Timeout = patience
	s, err := Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if s.Begun != 100 || s.OK != 100 || s.Share() != 1 || len(s.Errors) > 0 {
		t.Errorf("%+v; want 100 of 100", s)
	}
	if s.Connect.P50 <= 0 || s.Connect.P50 > s.Answered.P50 || s.Answered.Max > o.Timeout || s.Took > o.Timeout {
		t.Errorf("connected %+v, answered %+v, took %v", s.Connect, s.Answered, s.Took)
	}
	for _, a := range o.From {
		if n := by()[a]; n != 50 {
			t.Errorf("%d connections from %s, want 50", n, a)
		}
	}
}

// answerAll answers each connection.
func answerAll(conn net.Conn) {
	defer conn.Close()
	var b [1]byte
	if n, _ := conn.Read(b[:]); n == 1 && b[0] == '?' {
		_, _ = conn.Write([]byte("!"))
	}
}

// TestConnectBeside has urgent clients and an urgent source that never sleeps, on one CPU.
func TestConnectBeside(t *testing.T) {
	p, o := newCallers(t)
	serve(t, p.b.Host, o.Server, answerAll)
	o.Urgent = true
	flow := Flow{From: MustAddrs("128.0.0.0/2"), To: MustAddrs("10.0.0.2")}
	source := p.source(t, SourceOptions{Flows: []Flow{flow}, Rate: SmoothRate, Urgent: true, Batch: 16})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- source.Run(ctx) }()
	for range 3 {
		s, err := Connect(t.Context(), o)
		if err != nil || s.Begun != 100 || s.OK == 0 {
			t.Errorf("%+v, %v; want 100 started, and some answers", s, err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestConnectStops ends the context of clients that would continue for a long time.
func TestConnectStops(t *testing.T) {
	_, o := newCallers(t)
	o.Duration = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := Connect(ctx, o); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 50*time.Second {
		t.Errorf("%v after %v; want the end of the context at once", err, time.Since(start))
	}
}

// TestConnectFails has connections fail in each of the possible ways.
func TestConnectFails(t *testing.T) {
	p, o := newCallers(t)
	o.Duration = 50 * time.Millisecond
	serve(t, p.b.Host, netip.MustParseAddrPort("10.0.0.2:81"), func(net.Conn) {})
	serve(t, p.b.Host, netip.MustParseAddrPort("10.0.0.2:82"), func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		conn.Close()
	})
	for port, want := range map[uint16]string{80: FailedRefused, 81: FailedTimeout, 82: FailedClosed} {
		o.Server, o.Timeout = netip.AddrPortFrom(o.Server.Addr(), port), time.Minute // a busy machine takes long to refuse
		if want == FailedTimeout {
			o.Timeout = 300 * time.Millisecond
		}
		s, err := Connect(t.Context(), o)
		if err != nil || s.Begun != 50 || s.OK != 0 || s.Errors[want] != 50 {
			t.Errorf("port %d: %+v, %v; want 50 times %q", port, s, err, want)
		}
	}
}

// TestConnectRefuses checks the errors for useless options.
func TestConnectRefuses(t *testing.T) {
	from := []netip.Addr{netip.MustParseAddr("10.9.0.1")}
	for _, o := range []ConnectOptions{
		{Server: netip.MustParseAddrPort("[::1]:80"), From: from, Rate: 1, Duration: 1, Timeout: 1},
		{Server: netip.MustParseAddrPort("10.0.0.2:80"), Rate: 1, Duration: 1, Timeout: 1},
		{Server: netip.MustParseAddrPort("10.0.0.2:80"), From: from, Duration: 1, Timeout: 1},
		{Server: netip.MustParseAddrPort("10.0.0.2:80"), From: []netip.Addr{netip.IPv6Loopback()}, Rate: 1, Duration: 1, Timeout: 1},
	} {
		if _, err := Connect(t.Context(), o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// TestMeasureRun counts a run that ends by itself, in batches of a few.
func TestMeasureRun(t *testing.T) {
	p := newPair(t)
	if _, err := p.lab.NewSink(p.b, DropAll); err != nil {
		t.Fatal(err)
	}
	flow := Flow{From: MustAddrs("128.0.0.0/2"), To: MustAddrs("10.0.0.2")}
	s, err := p.lab.NewSource(p.a, SourceOptions{Flows: []Flow{flow}, Count: 5000, Rate: 200_000, Batch: 16})
	if err != nil {
		t.Fatal(err)
	}
	m, err := MeasureRun(t.Context(), s, p.b)
	if err != nil {
		t.Fatal(err)
	}
	const ring = 256 // VETH_RING_SIZE of drivers/net/veth.c: so many may wait for a receiver that has not run at the end
	if came := m.Packets + m.Refused; m.Sent != 5000 || came > m.Sent || came+ring < m.Sent || m.Time != s.Took() {
		t.Errorf("%+v, took %v; want 5000 sent, received or refused, but for %d", m, s.Took(), ring)
	}
	if _, err := p.lab.NewSource(p.a, SourceOptions{Flows: []Flow{flow}, Batch: batch + 1}); err == nil {
		t.Error("a batch that is too large: no error")
	}
}
