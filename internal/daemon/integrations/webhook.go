// SPDX-License-Identifier: Apache-2.0

// This file posts the daemon's events as JSON to a server of the operator. The daemon never waits for the server: it sends the events that the API
// still keeps. Each post contains the number of earlier events that could not be sent.

package integrations

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/os/remote"
	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// Post is the body of a request.
type Post struct {
	Host   string      `json:"host"`
	Sent   time.Time   `json:"sent"` // a receiver should refuse old posts, which may be replays
	Lost   uint64      `json:"lost"` // earlier events that could not be sent
	Events []api.Event `json:"events"`
}

// SignatureHeader is the header with "sha256=" and the HMAC-SHA256 of the body with the secret, in hexadecimal digits.
const SignatureHeader = "X-Floodwall-Signature"

// How long an answer may take, and the largest number of events in a request.
const (
	answerTime = 10 * time.Second
	mostEvents = 100
)

// mostHead is the largest header of an answer that is read, in bytes.
const mostHead = 64 << 10

// Sender posts events to the URL in the running policy.
type Sender struct {
	RunningPolicy func(context.Context) (control.RunningPolicy, error)
	Events        *api.Events
	Report        func(text string, err error) // called when sending begins to fail, and when it works again

	of    policy.Webhook
	last  uint64 // the last event that was sent or lost
	fails int
	due   time.Time // no request before this time
	lost  uint64
	told  bool // the loss of events was reported

	patience time.Duration // how long to wait for an answer; 0: answerTime
}

// Run posts until ctx ends.
func (s *Sender) Run(ctx context.Context) error {
	periodic.Run(ctx, look, func() {
		s.step(ctx)
	})
	if n := s.Events.Last() - s.last; s.of.URL != "" && n > 0 {
		s.Report(fmt.Sprintf("webhook: the daemon ends, and %d events were not sent", n), nil)
	}
	return nil
}

// step posts the waiting events when a post is due.
func (s *Sender) step(ctx context.Context) {
	w, err := s.RunningPolicy(ctx)
	if err != nil && !errors.Is(err, datapath.ErrNotLoaded) {
		return // other tasks report this error
	}
	of := w.Daemon.Webhook
	if of == nil {
		*s = Sender{RunningPolicy: s.RunningPolicy, Events: s.Events, Report: s.Report, last: s.Events.Last(), patience: s.patience}
		return
	}
	if s.of.URL != of.URL { // a new server has missed no events
		s.lost, s.told = 0, false
	}
	if s.of != *of { // waiting events go to the server that the policy names now
		s.of, s.fails, s.due = *of, 0, time.Time{}
	}
	if time.Now().Before(s.due) {
		return
	}
	events := s.Events.After(s.last)
	if len(events) == 0 {
		return
	}
	s.lost += events[0].ID - s.last - 1
	s.last = events[0].ID - 1
	events = events[:min(len(events), mostEvents)]
	if err := send(ctx, of, Post{hostname(), time.Now().UTC(), s.lost, screened(events, of.Addresses)}, cmp.Or(s.patience, answerTime)); err != nil {
		s.failed(ctx, fmt.Errorf("webhook: %w", err))
		return
	}
	if s.fails > 0 {
		s.Report(fmt.Sprintf("webhook: it answers again; %d events were lost meanwhile", s.lost), nil)
	}
	s.fails, s.lost, s.told, s.last = 0, 0, false, events[len(events)-1].ID
}

// failed reports a failure once, and again when events are lost. Each failure increases the wait before the next post.
func (s *Sender) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if s.fails == 0 {
		s.Report("", err)
	}
	if s.lost > 0 && !s.told {
		s.told = true
		s.Report("", fmt.Errorf("webhook: the server has not taken events for long: %d events are lost until now, as the daemon keeps the last ones only", s.lost))
	}
	wait := min(2*time.Second<<min(s.fails, 10), mostWait)
	s.fails++
	s.due = time.Now().Add(wait/2 + rand.N(wait/2)) // at least a second, at most mostWait
}

// send sends one post. patience limits the time for the answer.
func send(ctx context.Context, of *policy.Webhook, post Post, patience time.Duration) error {
	body, err := json.Marshal(post)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, of.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "floodwall/1")
	if of.SecretFile != "" {
		key, err := safefile.Read(of.SecretFile)
		if err != nil {
			return fmt.Errorf("secret_file: %w", err)
		}
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write(body)
		r.Header.Set(SignatureHeader, "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy, transport.DisableKeepAlives, transport.MaxResponseHeaderBytes = nil, true, mostHead
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	got, err := client.Do(r)
	if err != nil {
		return inWords(err, patience)
	}
	defer got.Body.Close()
	io.CopyN(io.Discard, got.Body, 64<<10) // only the status of an answer matters; its body is read so that the connection can be used again

	status := remote.Status(got.StatusCode)
	switch got.StatusCode / 100 {
	case 2:
		return nil
	case 3:
		return fmt.Errorf("the server answers %s, and redirects are not followed", status)
	default:
		return fmt.Errorf("the server answers %s", status)
	}
}

// inWords returns a short text for an HTTP client's error. It omits the URL, because the URL may contain a token.
func inWords(err error, patience time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the server does not answer within %v; its events wait, and are sent when it answers", patience)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return errors.New("the server has closed the connection without an answer")
	}
	return errors.New(remote.Why(err))
}

func hostname() string {
	name, _ := os.Hostname()
	return name
}

// screened removes addresses from events, unless addresses is true. It also removes Data, because Data may contain addresses in any form.
func screened(events []api.Event, addresses bool) []api.Event {
	if addresses {
		return events
	}
	out := make([]api.Event, len(events))
	for i, e := range events {
		e.Text, e.Data = masked(e.Text), nil
		out[i] = e
	}
	return out
}

// Patterns of addresses and prefixes. A run of characters of an IPv6 address counts as an address when it has "::" or six colons, because a time of
// day and a MAC address have neither. Any four numbers with dots count as an IPv4 address.
var (
	run6  = wording.Regexp(`[\w:.]*:[0-9A-Fa-f:.]*(/[0-9]+)?`)
	form4 = wording.Regexp(`[0-9]+(\.[0-9]+){3,}(/[0-9]+)?`)
	label = wording.Regexp(`^(([\w.]*[G-Zg-z_][\w.]*|[A-Fa-f]{5,}):)+`) // words before an address, as in sshd:2001:db8::1
)

// addressMark replaces an address.
const addressMark = "[address]"

// masked replaces each address and each prefix in a text by addressMark.
func masked(text string) string {
	text = run6().ReplaceAllStringFunc(text, func(run string) string {
		head := label().FindString(run)
		bare := strings.TrimRight(run[len(head):], ".")
		if strings.HasSuffix(bare, ":::") || !strings.HasSuffix(bare, "::") {
			bare = strings.TrimSuffix(bare, ":")
		}
		if !strings.Contains(bare, "::") && strings.Count(bare, ":") < 6 {
			return run
		}
		return head + addressMark + run[len(head)+len(bare):]
	})
	return form4().ReplaceAllString(text, addressMark)
}
