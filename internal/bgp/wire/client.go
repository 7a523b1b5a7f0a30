// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/instance"
	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/internal/os/sockets"
)

// DefaultDir is the directory of the socket of the standard instance. This instance uses the default directory in the BPF file system.
const DefaultDir = "/run/floodwall-bgp"

// Socket is the name of the socket in its directory.
const Socket = "bgp.sock"

// Dir is the directory of an instance's socket. bpffs is the instance's directory in the BPF file system.
func Dir(bpffs, standard string) string {
	return instance.With(DefaultDir, bpffs, standard)
}

// How long the process may take to answer, and the size limit of an answer.
const (
	patience  = 10 * time.Second
	maxAnswer = 32 << 20 // bytes
)

// Client sends requests to the process.
type Client struct {
	dir  string
	http http.Client
}

// NewClient makes a client for the socket in a directory.
func NewClient(dir string) *Client {
	c := &Client{dir: dir}
	c.http.Timeout = patience
	c.http.Transport = &http.Transport{DialContext: c.dial, DisableKeepAlives: true}
	return c
}

// ErrNotRunning is the error when no process serves the socket.
var ErrNotRunning = errors.New("`floodwall-bgp run` does not run")

// dial connects, and checks the user who serves the socket. The check is needed because the server gets passwords, and its answers about
// announcements are trusted. Only the owner of the directory may serve, and only in a directory where no other user can create a socket.
func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	info, err := os.Stat(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotRunning
	} else if err != nil {
		return nil, err
	}
	if (safefile.Rule{Closed: safefile.ToWriters}).Breach(info) != "" { // the owner is compared with the server's user
		return nil, fmt.Errorf("others can write to %s, which has mode %04o", c.dir, info.Mode().Perm())
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(c.dir, Socket))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, ErrNotRunning
	} else if err != nil {
		return nil, err
	}
	uid, _, err := sockets.Peer(conn)
	if owner := safefile.Owner(info); err == nil && uid != owner {
		err = fmt.Errorf("user %d serves %s, whose owner is user %d", uid, filepath.Join(c.dir, Socket), owner)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// AnswerError is an error that the process returns.
type AnswerError struct {
	Text string `json:"error"`
	Tip  string `json:"hint,omitempty"`
}

func (e *AnswerError) Error() string { return e.Text }

// Hint is the remedy.
func (e *AnswerError) Hint() string { return e.Tip }

// Status requests the state of the process.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	err = c.ask(ctx, http.MethodGet, "/v1/status", nil, &s)
	return s, err
}

// Received requests the FlowSpec routes of the routers.
func (c *Client) Received(ctx context.Context) (r Received, err error) {
	err = c.ask(ctx, http.MethodGet, "/v1/received", nil, &r)
	return r, err
}

// Put sends all wanted sessions and announcements.
func (c *Client) Put(ctx context.Context, w *Wanted) (s Status, err error) {
	body, err := json.Marshal(w)
	if err == nil {
		err = c.ask(ctx, http.MethodPut, "/v1/announcements", body, &s)
	}
	return s, err
}

func (c *Client) ask(ctx context.Context, method, path string, body []byte, to any) error {
	r, err := http.NewRequestWithContext(ctx, method, "http://bgp"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := c.http.Do(r)
	if errors.Is(err, ErrNotRunning) {
		return ErrNotRunning
	} else if err != nil {
		return fmt.Errorf("floodwall-bgp: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err != nil || len(text) > maxAnswer {
		return fmt.Errorf("floodwall-bgp: its answer cannot be read, or is longer than %d bytes: %v", maxAnswer, err)
	}
	if answer.StatusCode != http.StatusOK {
		e := &AnswerError{}
		if json.Unmarshal(text, e) != nil || e.Text == "" {
			e.Text = fmt.Sprintf("floodwall-bgp answers %s", answer.Status)
		}
		return e
	}
	return json.Unmarshal(text, to)
}
