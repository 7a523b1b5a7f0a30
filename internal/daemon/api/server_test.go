// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
)

// emptyServer returns a server for a host without a loaded policy.
func emptyServer(t testing.TB) *Server {
	return New(Parts{
		Host:   operate.NewHost(t.TempDir()+"/none", t.TempDir(), func(error) {}),
		Events: NewEvents(), Tell: func(string, string) {}, Audit: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// listens serves requests on an address of this host, as if they came from the given origin. Requests come from this process's user.
func (s *Server) listens(t *testing.T, from Origin, bodyTime time.Duration) (address string) {
	server := httptest.NewUnstartedServer(s.Handler(from))
	server.Config.ReadTimeout = bodyTime
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return WithPeer(ctx, Peer{UID: os.Geteuid(), PID: os.Getpid()})
	}
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.Listener.Addr().String()
}

// says sends a request verbatim, and returns the status of the answer.
func says(t *testing.T, address, request string) (status int, err error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(40 * time.Second)) // less than the time that the server waits for a body
	if _, err := io.WriteString(c, request); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, nil
}

// TestBodyOfGET announces a body to each route without a body, and never sends the body. The server must not wait for the body, because a stream
// would hold its slot forever.
func TestBodyOfGET(t *testing.T) {
	t.Parallel()
	address := emptyServer(t).listens(t, FromControlSocket, time.Minute)
	var all sync.WaitGroup
	defer all.Wait()
	for _, r := range Routes() {
		if r.Body != nil {
			continue
		}
		path := prefix + strings.ReplaceAll(r.Path, "{name}", "bans")
		for _, header := range []string{"Content-Length: 5", "Transfer-Encoding: chunked"} {
			all.Go(func() {
				status, err := says(t, address, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", path, header))
				if status != http.StatusBadRequest {
					t.Errorf("GET %s with %s: status %d, %v, want 400", path, header, status, err)
				}
			})
		}
	}
}

// TestBodyThatStops sends only a part of a body. The server must answer when the time for the body is over.
func TestBodyThatStops(t *testing.T) {
	t.Parallel()
	address := emptyServer(t).listens(t, FromControlSocket, 2*time.Second) // the time for the header is less than the time for the body
	status, err := says(t, address, "POST /v1/explain HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{")
	if status != http.StatusBadRequest {
		t.Errorf("status %d, %v, want 400", status, err)
	}
}

// TestLongQuestion announces four megabytes to a route that every user of this host may use. The server must refuse the request after the first 64
// KiB, so that many clients cannot fill the daemon's memory. The server must still read a change of that size.
func TestLongQuestion(t *testing.T) {
	t.Parallel()
	s := emptyServer(t)
	post := func(from Origin, path, body string, announced int) (int, error) {
		return says(t, s.listens(t, from, time.Minute), fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			path, announced, body))
	}
	part := `{"packet": "` + strings.Repeat("x", maxQuestion)
	for from := FromReadSocket; from <= FromRemote; from++ {
		if status, err := post(from, "/v1/explain", part, 4_000_000); status != http.StatusRequestEntityTooLarge {
			t.Errorf("a question of 4 MB from %s: status %d, %v, want 413", from, status, err)
		}
	}
	order := `{"prefixes": ["192.0.2.1"` + strings.Repeat(`, "192.0.2.1"`, 100_000) + "]}"
	if status, err := post(FromControlSocket, "/v1/block", order, len(order)); status == http.StatusRequestEntityTooLarge || err != nil {
		t.Errorf("an order of %d bytes: status %d, %v", len(order), status, err)
	}
}

// TestBodyOfOneValue sends bodies with text after their value. All of them must be refused.
func TestBodyOfOneValue(t *testing.T) {
	t.Parallel()
	handler := emptyServer(t).Handler(FromReadSocket)
	for _, more := range []string{"{}", "]", "}", "x"} {
		request := httptest.NewRequest(http.MethodPost, "/v1/explain", strings.NewReader(`{"packet": "tcp 192.0.2.7:1 > 192.0.2.1:80 S"} `+more))
		request.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if text := answer.Body.String(); answer.Code != http.StatusBadRequest || !strings.Contains(text, "more than one value") {
			t.Errorf("with %q behind the value: status %d, %s", more, answer.Code, text)
		}
	}
}

// TestSlotsOfOrigins follows events from each origin until no slot is left. The other origins must still get answers.
func TestSlotsOfOrigins(t *testing.T) {
	t.Parallel()
	s := emptyServer(t)
	for from := FromReadSocket; from <= FromRemote; from++ {
		address := s.listens(t, from, time.Minute)
		for i := range maxStreams + 1 {
			want := http.StatusOK
			if i == maxStreams {
				want = http.StatusTooManyRequests
			}
			if status, err := says(t, address, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n"); status != want {
				t.Fatalf("client %d of %s: status %d, %v, want %d", i, from, status, err, want)
			}
		}
	}
}

// TestPageKnowsEvents searches the page for each kind of event, because a browser delivers only events of the kinds that a page names.
func TestPageKnowsEvents(t *testing.T) {
	t.Parallel()
	text := string(Files()["/page/ask.js"].Text)
	list := regexp.MustCompile(`kinds = \{(.*)\};`).FindString(text)
	for _, kind := range []string{KindDone, KindWarning, KindAttack, KindChange} {
		if !strings.Contains(list, kind+":") {
			t.Errorf("the page does not know events of kind %s: %s", kind, list)
		}
	}
	if !strings.Contains(text, "for (const kind of Object.keys(kinds))") {
		t.Error("the page follows other kinds than it names")
	}
}

// TestListOfAttacksIsPaced requests the list of attacks often at the same time. The files must not be read for each request.
func TestListOfAttacksIsPaced(t *testing.T) {
	t.Parallel()
	s := emptyServer(t)
	reads, list := 0, s.reports.read
	s.reports.read = func(ctx context.Context) (AttackList, error) {
		reads++ // there is only one read at a time
		time.Sleep(50 * time.Millisecond)
		return list(ctx)
	}
	h := s.Handler(FromLoopback)
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/attacks", nil))
			if w.Code != http.StatusOK {
				t.Errorf("status %d: %s", w.Code, w.Body)
			}
		})
	}
	all.Wait()
	if reads > 50 {
		t.Errorf("%d reads for 200 requests", reads)
	}
}
