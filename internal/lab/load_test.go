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
		{"fixed rate, keep-alive, v6", LoadOptions{Server: six, Rate: 500, KeepAlive: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := servers[tt.o.Server].Requests()
			tt.o.Requests, tt.o.Interval, tt.o.Timeout = 101, 50*time.Millisecond, 10*time.Second
			sum := p.load(t, tt.o)
			if sum.OK != 101 || sum.Failed != 0 {
				t.Fatalf("got %+v; want 101 answers", sum)
			}
			if got := servers[tt.o.Server].Requests() - before; got != 101 {
				t.Errorf("server got %d requests, want 101", got)
			}
			if sum.P50 <= 0 || sum.P50 > sum.P99 || sum.P99 > sum.Max || sum.Max > 10*time.Second {
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
	sum := p.load(t, LoadOptions{Server: web, Requests: 3})
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
	if sum = p.load(t, LoadOptions{Server: web, Requests: 3}); sum.OK != 3 {
		t.Errorf("after XDP_DROP was detached: got %+v; want 3 answers", sum)
	}
}
