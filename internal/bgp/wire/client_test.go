// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// serve serves a handler at the socket of a directory.
func serve(t *testing.T, dir string, handler http.HandlerFunc) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, Socket))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	done := make(chan error)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
}

func answer(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text)) // the client may have gone
	}
}

// TestClient asks a server at a real socket. What is asked must arrive, and an error must come back with its remedy.
func TestClient(t *testing.T) {
	dir := t.TempDir()
	asked := ""
	serve(t, dir, func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.Path
		switch r.URL.Path {
		case "/v1/received":
			answer(http.StatusOK, `{"routes": [{"peer": "192.0.2.1", "as": 64501, "family": "ipv6-flowspec", "nlri": "AQI=", "stale": true}]}`)(w, r)
		case "/v1/announcements":
			answer(http.StatusConflict, `{"error": "the disk is full", "hint": "delete files"}`)(w, r)
		default:
			answer(http.StatusOK, `{"live": true, "announced": 7}`)(w, r)
		}
	})
	c := NewClient(dir)
	if s, err := c.Status(t.Context()); err != nil || !s.Live || s.Announced != 7 || asked != "GET /v1/status" {
		t.Errorf("%s: %+v, %v", asked, s, err)
	}
	r, err := c.Received(t.Context())
	want := Route{Peer: netip.MustParseAddr("192.0.2.1"), AS: 64501, Family: policy.IPv6FlowSpec, NLRI: []byte{1, 2}, Stale: true}
	if err != nil || len(r.Routes) != 1 || string(r.Routes[0].NLRI) != string(want.NLRI) || r.Routes[0].Family != want.Family || !r.Routes[0].Stale {
		t.Errorf("%s: %+v, %v", asked, r, err)
	}
	var refused *AnswerError
	if _, err := c.Put(t.Context(), &Wanted{}); !errors.As(err, &refused) || refused.Text != "the disk is full" || refused.Hint() != "delete files" || asked != "PUT /v1/announcements" {
		t.Errorf("%s: %v", asked, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Status(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v", err)
	}
}

// TestClientMistrusts has what a client must not take for an answer: no server, a directory in which others can make a socket, and answers that are
// not of this protocol.
func TestClientMistrusts(t *testing.T) {
	for _, test := range []struct {
		name string
		make func(t *testing.T, dir string)
		want string
	}{
		{"no directory", func(_ *testing.T, dir string) { os.Remove(dir) }, ErrNotRunning.Error()},
		{"no socket", func(*testing.T, string) {}, ErrNotRunning.Error()},
		{"a socket of a process that has ended", func(t *testing.T, dir string) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, Socket), Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			l.Close()
		}, ErrNotRunning.Error()},
		{"others can write to the directory", func(t *testing.T, dir string) {
			serve(t, dir, answer(http.StatusOK, "{}"))
			if err := os.Chmod(dir, 0o770); err != nil {
				t.Fatal(err)
			}
		}, "others can write to"},
		{"no JSON", func(t *testing.T, dir string) { serve(t, dir, answer(http.StatusOK, "hello")) }, "invalid character"},
		{"an error without text", func(t *testing.T, dir string) { serve(t, dir, answer(http.StatusTeapot, `{"hint": "tea"}`)) }, "answers 418"},
		{"an endless answer", func(t *testing.T, dir string) {
			serve(t, dir, func(w http.ResponseWriter, _ *http.Request) {
				for line := make([]byte, 1<<20); ; {
					if _, err := w.Write(line); err != nil {
						return
					}
				}
			})
		}, "longer than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "it")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			test.make(t, dir)
			if _, err := NewClient(dir).Status(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestClientOfOther has a server that is not the owner of the directory.
func TestClientOfOther(t *testing.T) {
	testutil.RequireRoot(t)
	dir := t.TempDir()
	serve(t, dir, answer(http.StatusOK, "{}"))
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := NewClient(dir).Status(t.Context()); err == nil || !strings.Contains(err.Error(), "whose owner is user 65534") {
		t.Errorf("%v", err)
	}
}
