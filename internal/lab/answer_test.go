// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// These tests need no rights: the servers are on the loopback device of this process.

// mustLoad runs clients, and checks that the samples add up to the summary.
func mustLoad(t testing.TB, o LoadOptions) LoadSummary {
	t.Helper()
	var ok, failed uint64
	last := time.Duration(0)
	late := false
	o.OnSample = func(s Sample) {
		ok, failed = ok+s.OK, failed+s.Failed
		if s.Time <= last || s.P50 > s.P99 || (s.OK > 0) != (s.P50 > 0) || late && !s.Late {
			t.Errorf("sample %+v after %s", s, last)
		}
		last, late = s.Time, s.Late
	}
	sum, err := Load(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if ok != sum.OK || failed != sum.Failed {
		t.Errorf("samples add up to %d and %d, want %d and %d", ok, failed, sum.OK, sum.Failed)
	}
	return sum
}

// listen has serve handle each connection to a port of the loopback device, and close it when it returns.
func listen(t testing.TB, serve func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// answering answers each request on its connections, after delay has returned.
func answering(delay func(), answer string) func(net.Conn) {
	return func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			request, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			delay()
			if _, err := c.Write([]byte(answer)); err != nil || request.Close {
				return
			}
		}
	}
}

const plainAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"

// nothing returns a port without a server.
func nothing(t testing.TB) netip.AddrPort {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// reset has the connection end with a reset.
func reset(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }

// afterRequest reads a request before fn.
func afterRequest(fn func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			fn(c)
		}
	}
}

func TestFailures(t *testing.T) {
	write := func(text string) func(net.Conn) { return func(c net.Conn) { _, _ = c.Write([]byte(text)) } }
	stall := func(c net.Conn) { time.Sleep(2 * time.Second) }
	for _, tt := range []struct {
		name  string
		serve func(net.Conn) // nil: nobody listens
		kind  string
	}{
		{"nobody listens", nil, FailedRefused},
		{"no answer", afterRequest(stall), FailedTimeout},
		{"half an answer", afterRequest(func(c net.Conn) { write("HTTP/1.1 200 OK\r\nContent-Le")(c); stall(c) }), FailedTimeout},
		{"reset", afterRequest(reset), FailedReset},
		{"closed at once", afterRequest(func(net.Conn) {}), FailedClosed},
		{"closed early", afterRequest(write("HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nabc")), FailedClosed},
		{"busy", afterRequest(write("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")), "status 503"},
		{"not HTTP", afterRequest(write("SSH-2.0-x\r\n\r\n")), FailedAnswer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			to := nothing(t)
			if tt.serve != nil {
				to = listen(t, tt.serve)
			}
			for _, o := range []LoadOptions{{Connections: 3}, {Rate: 500}, {Connections: 7, KeepAlive: true}} {
				o.Server, o.Requests, o.Timeout = to, 7, patience
				if tt.kind == FailedTimeout {
					o.Timeout = 300 * time.Millisecond
				}
				sum := mustLoad(t, o)
				if sum.OK != 0 || sum.Failed != 7 || sum.Errors[tt.kind] != 7 {
					t.Errorf("%+v: got %+v; want 7 times %q", o, sum, tt.kind)
				}
			}
		})
	}
}

// TestPauses has connections to a port without a server, which fail immediately. Each waits 10, 20, 40, 80 ms and then 100 ms before it tries again.
func TestPauses(t *testing.T) {
	t.Parallel()
	const connections = 3
	unhurried(t, func() error {
		start := time.Now()
		sum := mustLoad(t, LoadOptions{Server: nothing(t), Connections: connections, Duration: 400 * time.Millisecond, Timeout: patience})
		took := time.Since(start)
		if sum.OK != 0 || sum.Failed > 7*connections || sum.Failed != sum.Errors[FailedRefused] {
			t.Errorf("%+v; want 2 to 7 refused for each connection", sum)
		}
		if sum.Failed < 2*connections {
			return fmt.Errorf("%+v; want 2 to 7 refused for each connection", sum)
		}
		return below("the load took", took, 2*time.Second)
	})
	refused := fmt.Errorf("dial: %w", unix.ECONNREFUSED)
	for _, tt := range []struct {
		waited time.Duration
		err    error
		want   time.Duration
	}{
		{0, refused, firstWait}, {firstWait, refused, 2 * firstWait}, {80 * time.Millisecond, refused, longestWait},
		{longestWait, refused, longestWait}, {longestWait, nil, 0}, {firstWait, unix.ETIMEDOUT, 0}, {0, unix.EHOSTUNREACH, firstWait},
	} {
		if got := afterwards(tt.waited, tt.err); got != tt.want {
			t.Errorf("after %v and %v: %v, want %v", tt.waited, tt.err, got, tt.want)
		}
	}
}

// TestCoordinatedOmission has a server that answers nothing for 200 ms. Clients that send requests at a fixed rate must find that a tenth of their
// requests took longer than 100 ms, although few of them were in progress. Clients that wait for the answer see only one slow request.
func TestCoordinatedOmission(t *testing.T) {
	const requests, stall = 1000, 200 * time.Millisecond
	serve := func() netip.AddrPort {
		var began atomic.Int64
		return listen(t, answering(func() {
			now := time.Now()
			began.CompareAndSwap(0, now.UnixNano())
			since := now.Sub(time.Unix(0, began.Load()))
			if since > 300*time.Millisecond && since < 300*time.Millisecond+stall {
				time.Sleep(300*time.Millisecond + stall - since)
			}
		}, plainAnswer))
	}
	o := LoadOptions{Requests: requests, Timeout: time.Minute, Rate: 1000, Connections: 4, KeepAlive: true}
	unhurried(t, func() error {
		o.Server = serve()
		open := mustLoad(t, o)
		if open.OK != requests || open.P90 < 60*time.Millisecond || open.P99 < 150*time.Millisecond {
			t.Errorf("at a fixed rate: %+v; want a tenth above 100 ms", open)
		}
		return below("half of the requests at a fixed rate", open.P50, stall/2)
	})
	o.Rate, o.Connections, o.Requests, o.Duration = 0, 1, 0, time.Second
	unhurried(t, func() error {
		o.Server = serve()
		closed := mustLoad(t, o)
		if closed.Max < 150*time.Millisecond { // or the client stood still for most of the time for which the server did
			return fmt.Errorf("one connection: %+v; want one slow request", closed)
		}
		if closed.OK < 100 {
			return fmt.Errorf("one connection: %d answers, want 100", closed.OK)
		}
		return below("99% of one connection's requests", closed.P99, 100*time.Millisecond)
	})
}

// tries is how often a time may be too long: a busy machine makes times longer, and never shorter.
const tries = 20

// unhurried repeats a measurement of times until they are short enough. The error contains the time that is too long.
func unhurried(t *testing.T, measure func() error) {
	t.Helper()
	var err error
	for range tries {
		if err = measure(); err == nil || t.Failed() {
			return
		}
	}
	t.Error(err)
}

// below returns an error unless a time is at most a limit.
func below(what string, got, limit time.Duration) error {
	if got > limit {
		return fmt.Errorf("%s: %v, want at most %v", what, got, limit)
	}
	return nil
}

// TestTimes has a server take 30 ms for nine of ten answers and 150 ms for the others, and send them in two parts.
func TestTimes(t *testing.T) {
	var n atomic.Int64
	to := listen(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			delay := 30 * time.Millisecond
			if n.Add(1)%10 == 0 {
				delay = 150 * time.Millisecond
			}
			time.Sleep(delay)
			fmt.Fprint(c, plainAnswer[:len(plainAnswer)-1])
			time.Sleep(20 * time.Millisecond)
			fmt.Fprint(c, plainAnswer[len(plainAnswer)-1:])
		}
	})
	o := LoadOptions{Server: to, Requests: 200, Connections: 10, KeepAlive: true, Timeout: time.Minute}
	unhurried(t, func() error { return timed(t, mustLoad(t, o)) })
}

// timed checks the results of TestTimes. It returns an error for times that a busy machine may have changed: all may be too long, and a client that
// runs late can confuse the end of one phase with the start of the next.
func timed(t *testing.T, sum LoadSummary) error {
	t.Helper()
	const late = 40 * time.Millisecond
	var slow error
	within := func(what string, got, low time.Duration) {
		t.Helper()
		if got < low {
			t.Errorf("%s: %v, want %v at least", what, got, low)
		}
		slow = errors.Join(slow, below(what, got, low+late))
	}
	phase := func(what string, got, low time.Duration) {
		if got < low {
			slow = errors.Join(slow, fmt.Errorf("%s: %v, want %v at least", what, got, low))
		}
		slow = errors.Join(slow, below(what, got, low+late))
	}
	within("half", sum.P50, 50*time.Millisecond)
	within("99%", sum.P99, 170*time.Millisecond)
	within("mean", sum.Mean, 62*time.Millisecond)
	if sum.OK != 200 || sum.Bytes != 600 {
		t.Errorf("%d answers of %d bytes, want 200 of 600", sum.OK, sum.Bytes)
	}
	counts := map[string]uint64{}
	for _, p := range sum.Phases {
		counts[p.Name] = p.Requests
		switch p.Name {
		case "first byte":
			phase("first byte", p.P50, 30*time.Millisecond)
		case "complete":
			phase("complete", p.P50, 20*time.Millisecond)
		}
	}
	if counts["connect"] != 10 || counts["tls"] != 0 || counts["send"] != 200 || counts["first byte"] != 200 || counts["complete"] != 200 {
		t.Errorf("requests by phase: %v", counts)
	}
	return slow
}

// TestKinds sends all possible kinds of requests to a server of the standard library.
func TestKinds(t *testing.T) {
	type seen struct {
		proto, method, host, path, header string
		secure                            bool
	}
	got := make(chan seen, 100)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- seen{r.Proto, r.Method, r.Host, r.URL.RequestURI(), r.Header.Get("X-Test"), r.TLS != nil}
		fmt.Fprint(w, strings.Repeat("x", 100_000)) // in chunks, or until the end of the connection
	})
	for _, secure := range []bool{false, true} {
		for _, http10 := range []bool{false, true} {
			for _, keep := range []bool{false, true} {
				o := LoadOptions{
					Requests: 6, Connections: 2, KeepAlive: keep, Timeout: 10 * time.Second, Duration: time.Minute,
					Request: Request{Target: "/a?b=c", Host: "example.org", HTTP10: http10, Header: http.Header{"X-Test": {"1"}}},
				}
				t.Run(fmt.Sprintf("tls=%v,http10=%v,keep=%v", secure, http10, keep), func(t *testing.T) {
					s := httptest.NewUnstartedServer(handler)
					start := s.Start
					if secure {
						start = s.StartTLS
						o.TLS = &tls.Config{InsecureSkipVerify: true}
					}
					start()
					defer s.Close()
					u, err := url.Parse(s.URL)
					if err != nil {
						t.Fatal(err)
					}
					o.Server = netip.MustParseAddrPort(u.Host)
					sum := mustLoad(t, o)
					if sum.OK != 6 || sum.Bytes != 600_000 {
						t.Fatalf("got %+v; want 6 answers of 100,000 bytes", sum)
					}
					want := seen{"HTTP/1.1", "GET", "example.org", "/a?b=c", "1", secure}
					if http10 {
						want.proto = "HTTP/1.0"
					}
					for range 6 {
						if r := <-got; r != want {
							t.Errorf("the server saw %+v, want %+v", r, want)
						}
					}
					connected := uint64(6)
					if keep && !http10 { // without a length, only the end of the connection ends an answer in 1.0
						connected = 2
					}
					if n := sum.Phases[0].Requests; n != connected || (sum.Phases[1].Name == "tls") != secure {
						t.Errorf("%d connections, phases %+v; want %d", n, sum.Phases, connected)
					}
				})
			}
		}
	}
}

// TestClosedBetweenRequests has a server that closes each connection after its answer without notice. This is no failure.
func TestClosedBetweenRequests(t *testing.T) {
	to := listen(t, afterRequest(func(c net.Conn) { fmt.Fprint(c, plainAnswer) }))
	sum := mustLoad(t, LoadOptions{Server: to, Requests: 50, KeepAlive: true, Timeout: patience})
	if sum.OK != 50 || sum.Failed != 0 {
		t.Errorf("got %+v; want 50 answers", sum)
	}
}

// TestUntrusted has clients check the certificate.
func TestUntrusted(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	u, _ := url.Parse(s.URL)
	to := netip.MustParseAddrPort(u.Host)
	sum := mustLoad(t, LoadOptions{Server: to, TLS: &tls.Config{ServerName: "127.0.0.1"}, Requests: 2, Timeout: patience})
	if sum.Errors[FailedCertificate] != 2 {
		t.Errorf("got %+v; want 2 certificates that are not trusted", sum)
	}
	plain := listen(t, answering(func() {}, plainAnswer))
	sum = mustLoad(t, LoadOptions{Server: plain, TLS: &tls.Config{InsecureSkipVerify: true}, Requests: 2, Timeout: time.Second})
	if sum.Failed != 2 || sum.OK != 0 {
		t.Errorf("TLS with a server in the clear: got %+v; want 2 failures", sum)
	}
}

func TestBadRequests(t *testing.T) {
	for _, r := range []Request{
		{Method: "GET /"}, {Target: "/ HTTP/1.1\r\nX: y"}, {Host: "a b"}, {Header: http.Header{"a b": {"c"}}},
		{Header: http.Header{"a": {"c\r\nd: e"}}},
	} {
		if sum, err := Load(t.Context(), LoadOptions{Server: netip.MustParseAddrPort("127.0.0.1:1"), Request: r, Requests: 1}); err == nil {
			t.Errorf("%+v: got %+v; want an error", r, sum)
		}
	}
}
