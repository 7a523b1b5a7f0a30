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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/operate"
)

// emptyServer answers for a host where nothing is loaded.
func emptyServer(t testing.TB) *Server {
	return New(Parts{
		Host:   operate.NewHost(t.TempDir()+"/none", t.TempDir(), func(error) {}),
		Events: NewEvents(), Tell: func(string, string) {}, Audit: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// listens serves an origin on an address of this host. Who asks is the user of this process.
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

// says sends a request as it is written, and returns the status of the answer.
func says(t *testing.T, address, request string) (status int, err error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(15 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, nil
}

// TestBodyOfGET announces a body to each route that has none, and never sends it. The server must not wait for it: a stream would hold
// its slot without an end.
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

// TestBodyThatStops sends a part of a body. When the time for it is over, there is an answer.
func TestBodyThatStops(t *testing.T) {
	t.Parallel()
	address := emptyServer(t).listens(t, FromControlSocket, 100*time.Millisecond)
	status, err := says(t, address, "POST /v1/explain HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{")
	if status != http.StatusBadRequest {
		t.Errorf("status %d, %v, want 400", status, err)
	}
}

// TestSlotsOfOrigins has each origin follow events until it has no slot left. The other origins are answered all the same.
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
