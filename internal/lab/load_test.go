// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"testing"
	"time"
)

var web = netip.MustParseAddrPort("10.0.0.2:80")

func (p pair) server(t testing.TB, addr netip.AddrPort) *Server {
	t.Helper()
	s, err := p.lab.NewServer(p.b.Host, addr, []byte("a small file"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// load runs clients in the left host.
func (p pair) load(t testing.TB, o LoadOptions) LoadSummary {
	t.Helper()
	o.Host = p.a.Host
	return mustLoad(t, o)
}

func TestLoad(t *testing.T) {
	p := newPair(t)
	six := netip.MustParseAddrPort("[fd00::2]:80")
	servers := map[netip.AddrPort]*Server{web: p.server(t, web), six: p.server(t, six)}
	for _, tt := range []struct {
		name string
		o    LoadOptions
	}{
		{"one worker", LoadOptions{Server: web}},
		{"one worker, v6", LoadOptions{Server: six}},
		{"workers", LoadOptions{Server: web, Connections: 8}},
		{"workers, keep-alive", LoadOptions{Server: web, Connections: 8, KeepAlive: true}},
		{"fixed rate", LoadOptions{Server: web, Rate: 500}},
		{"a process of their own", LoadOptions{Server: web, Rate: 500, Apart: true, CPU: 0}},
		{"fixed rate, keep-alive, v6", LoadOptions{Server: six, Rate: 500, KeepAlive: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := servers[tt.o.Server].Requests()
			tt.o.Requests, tt.o.Interval, tt.o.Timeout = 101, 50*time.Millisecond, patience
			sum := p.load(t, tt.o)
			if sum.OK != 101 || sum.Failed != 0 {
				t.Fatalf("got %+v; want 101 answers", sum)
			}
			if got := servers[tt.o.Server].Requests() - before; got != 101 {
				t.Errorf("server got %d requests, want 101", got)
			}
			if sum.P50 <= 0 || sum.P50 > sum.P99 || sum.P99 > sum.Max || sum.Max > patience {
				t.Errorf("times do not rise: %+v", sum)
			}
			if tt.o.Rate > 0 && sum.Time < 200*time.Millisecond {
				t.Errorf("101 requests at 500 per second began in %s, want at least 200 ms", sum.Time)
			}
		})
	}
}

func TestLoadFails(t *testing.T) {
	p := newPair(t)
	sum := p.load(t, LoadOptions{Server: web, Requests: 3, Timeout: time.Minute}) // a lost SYN comes again after a second
	if sum.OK != 0 || sum.Errors[FailedRefused] != 3 {
		t.Errorf("without server: got %+v; want 3 refused connections", sum)
	}

	p.server(t, web)
	sink := p.sink(t, p.b, DropAll)
	sum = p.load(t, LoadOptions{Server: web, Requests: 2, Connections: 2, Timeout: 200 * time.Millisecond})
	if sum.OK != 0 || sum.Errors[FailedTimeout] != 2 || sum.Time < 200*time.Millisecond {
		t.Errorf("with XDP_DROP: got %+v; want 2 timeouts", sum)
	}
	sum = p.load(t, LoadOptions{Server: web, Rate: 100, Duration: 300 * time.Millisecond, Timeout: 100 * time.Millisecond})
	if sum.OK != 0 || sum.Errors[FailedTimeout] < 5 {
		t.Errorf("with XDP_DROP, at a fixed rate: got %+v; want timeouts", sum)
	}

	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	if sum = p.load(t, LoadOptions{Server: web, Requests: 3, Timeout: time.Minute}); sum.OK != 3 {
		t.Errorf("after XDP_DROP was detached: got %+v; want 3 answers", sum)
	}
}

// TestServerProcess has clients and a server in separate processes. The server must end when it is stopped, and the samples of its answers must add
// up.
func TestServerProcess(t *testing.T) {
	p := newPair(t)
	stop, err := p.lab.NewServerProcess(p.b.Host, web, []byte("a small file"), 0, Urgent)
	if err != nil {
		t.Fatal(err)
	}
	var sampled uint64
	sum, err := Load(t.Context(), LoadOptions{
		Host: p.a.Host, Server: web, Rate: 500, Requests: 101, Timeout: patience, Interval: 50 * time.Millisecond,
		Apart: true, OnSample: func(s Sample) { sampled += s.OK },
	})
	if err != nil {
		t.Fatal(err)
	}
	if sum.OK != 101 || sum.Failed != 0 || sampled != 101 || sum.Bytes != 101*uint64(len("a small file")) {
		t.Errorf("%d answers in samples, altogether %+v; want 101 of each", sampled, sum)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if sum := p.load(t, LoadOptions{Server: web, Requests: 1, Apart: true, Timeout: time.Minute}); sum.Errors[FailedRefused] != 1 {
		t.Errorf("after its end: %+v, want 1 refused", sum)
	}
}

// TestDriverCounts counts frames that an XDP program drops, and others that no program sees. All fit into the queue.
func TestDriverCounts(t *testing.T) {
	p := newPair(t)
	var c DriverCounts
	send := func(n, all uint64) {
		p.send(t, SourceOptions{Flows: []Flow{plain}, Count: n, Rate: 20_000})
		for c.Received < all && t.Context().Err() == nil {
			var err error
			if c, err = p.b.DriverCounts(); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(100, 100)
	sink := p.sink(t, p.b, DropAll)
	send(50, 150)
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	if want := (DriverCounts{Received: 150, Dropped: 50}); c != want || c.Passed() != 100 {
		t.Errorf("got %+v, %d passed; want %+v, 100 passed", c, c.Passed(), want)
	}
}
