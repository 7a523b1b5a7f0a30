// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// script makes the right host call fn for each connection, until the test ends.
func (p pair) script(t testing.TB, addr netip.AddrPort, fn func(net.Conn)) {
	t.Helper()
	l, err := p.b.Host.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fn(c)
			c.Close()
		}
	}()
}

func (p pair) serial(t testing.TB, o SerialOptions) (*SerialSummary, error) {
	t.Helper()
	o.Host, o.Body = p.a.Host, len("a small file")
	if !o.Server.IsValid() {
		o.Server = web
	}
	return Serial(t.Context(), o)
}

func TestSerial(t *testing.T) {
	p := newPair(t)
	for _, addr := range []netip.AddrPort{web, netip.MustParseAddrPort("[fd00::2]:80")} {
		s := p.server(t, addr)
		sum, err := p.serial(t, SerialOptions{Server: addr, Requests: 50, Warmup: 7})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Requests(); got != 57 {
			t.Errorf("%s: the server got %d requests, want 57", addr, got)
		}
		var parts time.Duration
		for i, phase := range sum.Phases {
			parts += phase.Latency().Mean
			if n := phase.Count(); n != 50 {
				t.Errorf("%s: %d times of %q, want 50", addr, n, SerialPhases[i])
			}
		}
		whole := sum.Whole.Latency()
		if sum.Whole.Count() != 50 || whole.P50 <= 0 || whole.P50 > whole.P99 || whole.P99 > whole.Max {
			t.Errorf("%s: %d times, %+v", addr, sum.Whole.Count(), whole)
		}
		if diff := (parts - whole.Mean).Abs(); diff > whole.Mean/50+time.Microsecond {
			t.Errorf("%s: the phases take %v together, a request takes %v", addr, parts, whole.Mean)
		}
	}
}

// TestSerialPhases uses a server with known delays in known places. A client that a busy machine wakes late moves time from one phase to another. So
// one of several requests must show both delays.
func TestSerialPhases(t *testing.T) {
	p := newPair(t)
	const think, pause = 20 * time.Millisecond, 60 * time.Millisecond
	asked := make(chan string, 1)
	p.script(t, web, func(c net.Conn) {
		request := make([]byte, 1000)
		n, _ := c.Read(request)
		asked <- string(request[:n])
		time.Sleep(think)
		io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\na small")
		time.Sleep(pause)
		io.WriteString(c, " file")
	})
	unhurried(t, func() error {
		sum, err := p.serial(t, SerialOptions{Request: Request{Target: "/it"}, Requests: 1})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := <-asked, "GET /it HTTP/1.0\r\nHost: 10.0.0.2:80\r\n\r\n"; got != want {
			t.Errorf("asked %q, want %q", got, want)
		}
		first, complete := sum.Phases[2].Latency().Mean, sum.Phases[3].Latency().Mean
		if first < think || complete < pause {
			return fmt.Errorf("first byte after %v, complete after %v more; want at least %v and %v", first, complete, think, pause)
		}
		return nil
	})
}

func TestSerialFrom(t *testing.T) {
	p := newPair(t)
	from := netip.MustParseAddr("10.0.0.77")
	if err := p.a.Host.Own(netip.PrefixFrom(from, 32)); err != nil {
		t.Fatal(err)
	}
	if err := p.b.Host.Route(netip.PrefixFrom(from, 32), netip.MustParseAddr("10.0.0.1"), p.b); err != nil {
		t.Fatal(err)
	}
	came := make(chan string, 100)
	p.script(t, web, func(c net.Conn) {
		came <- c.RemoteAddr().String()
		io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\na small file")
		io.Copy(io.Discard, c)
	})
	unhurried(t, func() error {
		if _, err := p.serial(t, SerialOptions{From: from, Requests: 1, Timeout: 200 * time.Millisecond}); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a server that does not close: %v, want %v", err, os.ErrDeadlineExceeded)
		}
		if len(came) == 0 {
			return errors.New("no connection came to the server")
		}
		return nil
	})
	if got := <-came; !strings.HasPrefix(got, "10.0.0.77:") {
		t.Errorf("the client was %s, want %s", got, from)
	}
}

func TestSerialFails(t *testing.T) {
	p := newPair(t)
	answers := map[string]string{
		"HTTP/1.0 404 Not Found\r\n\r\na small file": "404",
		"HTTP/1.0 200 OK\r\n\r\na small fil":         "11 bytes, want 12",
		"HTTP/1.0 200 OK\r\n":                        "EOF",
		"":                                           "EOF",
	}
	next := make(chan string, 1)
	p.script(t, web, func(c net.Conn) {
		c.Read(make([]byte, 1000))
		io.WriteString(c, <-next)
	})
	for answer, want := range answers {
		next <- answer
		if _, err := p.serial(t, SerialOptions{Requests: 3}); err == nil || !strings.Contains(err.Error(), "request 1: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("answer %q: %v, want an error with %q", answer, err, want)
		}
	}
	if _, err := p.serial(t, SerialOptions{Server: netip.MustParseAddrPort("10.0.0.2:81"), Requests: 1}); err == nil || !strings.Contains(err.Error(), "connect: connection refused") {
		t.Errorf("a closed port: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Serial(ctx, SerialOptions{Host: p.a.Host, Server: web, Requests: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: %v, want %v", err, context.Canceled)
	}
	p.sink(t, p.b, DropAll)
	_, err := p.serial(t, SerialOptions{Requests: 1, Timeout: 50 * time.Millisecond})
	if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "connect: ") {
		t.Errorf("with XDP_DROP: %v, want %v in connect", err, os.ErrDeadlineExceeded)
	}
}

func TestSerialTimes(t *testing.T) {
	var all Times
	if all.Count() != 0 || all.Quantile(50) != 0 || all.Latency() != (Latency{}) {
		t.Errorf("none: %d, %v", all.Count(), all.Latency())
	}
	for part := range 2 {
		times := newTimes()
		for i := range 500 {
			times.add(time.Duration(2*i+part+1) * time.Microsecond)
		}
		all.Add(times)
	}
	all.Add(Times{})
	for percent, want := range map[float64]time.Duration{50: 500, 99: 990, 99.9: 999, 100: 1000} {
		want *= time.Microsecond
		if got := all.Quantile(percent); all.Count() != 1000 || (got-want).Abs() > want/1000 {
			t.Errorf("%g%% of %d times within %v, want %v", percent, all.Count(), got, want)
		}
	}
}
