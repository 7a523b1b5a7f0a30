// SPDX-License-Identifier: Apache-2.0

package integrations

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/policy"
)

// TestSender posts to a server that fails in several ways, and then answers. Each event must arrive once, in order, signed, and without addresses.
// The server must be told the number of events that were lost because they were not kept.
func TestSender(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var fail http.HandlerFunc
	var got []Post
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hook" || r.Method != http.MethodPost {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		if fail != nil {
			fail(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mac := hmac.New(sha256.New, []byte("s3cret"))
		mac.Write(body)
		if sign := r.Header.Get(SignatureHeader); sign != "sha256="+hex.EncodeToString(mac.Sum(nil)) {
			t.Errorf("signature %s", sign)
		}
		var p Post
		if err := json.Unmarshal(body, &p); err != nil {
			t.Error(err)
		}
		got = append(got, p)
	}))
	defer server.Close()
	hook := &policy.Webhook{URL: server.URL + "/hook?token=hidden", SecretFile: file}
	var said []string
	s := &Sender{
		RunningPolicy: func(context.Context) (control.RunningPolicy, error) {
			return control.RunningPolicy{Daemon: policy.Daemon{Webhook: hook}}, nil
		},
		Events: api.NewEvents(),
		Report: func(text string, err error) { said = append(said, fmt.Sprint(text, err)) },
	}
	step := func() { s.due = time.Time{}; s.step(t.Context()) }
	s.Events.Publish(api.KindDone, "rule ssh: banned 198.51.100.7 for 10m", map[string]string{"from": "198.51.100.7"})
	for name, one := range map[string]struct {
		fail http.HandlerFunc
		want string
	}{
		"500": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "webhook: the server answers 500"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "webhook: the server answers 307"},
		"cut": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "webhook: the server has closed the connection without an answer"},
	} {
		fail, said, s.fails = one.fail, nil, 0
		step()
		step()
		if len(said) != 1 || !strings.Contains(said[0], one.want) || strings.Contains(said[0], "hidden") {
			t.Errorf("%s: reported %q", name, said)
		}
		if s.due.Before(time.Now()) {
			t.Errorf("%s: no pause after a failure", name)
		}
	}
	for i := range 600 { // more than are kept
		s.Events.Publish(api.KindWarning, fmt.Sprint("number ", i))
	}
	fail, said = nil, nil
	for range 8 {
		step()
	}
	if len(got) == 0 || got[0].Lost != 89 || len(said) != 1 || !strings.Contains(said[0], "89 events were lost") {
		t.Fatalf("%d requests, said %q", len(got), said)
	}
	next := got[0].Events[0].ID
	for _, p := range got {
		for _, e := range p.Events {
			if e.ID != next {
				t.Fatalf("event %d, want %d", e.ID, next)
			}
			next++
		}
	}
	if next != 602 {
		t.Errorf("the last event is %d", next-1)
	}

	got = nil
	s.Events.Publish(api.KindDone, "banned 198.51.100.7, 2001:db8::7/64: see 192.0.2.1:80. At 12:30: 5 of ff", "2001:db8::7")
	step()
	if e := got[0].Events[0]; e.Text != "banned [address], [address]: see [address]:80. At 12:30: 5 of ff" || e.Data != nil {
		t.Errorf("sent %+v", e)
	}
	hook = &policy.Webhook{URL: hook.URL, SecretFile: file, Addresses: true}
	s.Events.Publish(api.KindDone, "banned 198.51.100.7")
	step()
	if e := got[1].Events[0]; e.Text != "banned 198.51.100.7" {
		t.Errorf("sent %+v", e)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	said = nil
	s.Events.Publish(api.KindDone, "more")
	step()
	if len(got) != 2 || len(said) != 1 || !strings.Contains(said[0], "read by others") {
		t.Errorf("with a secret that others may read: %d requests, said %q", len(got), said)
	}
}

// TestMasked checks that no part of an address stays in a text, and that times, MAC addresses, ports and names do not change.
func TestMasked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"banned 2001:db8:1:2:: for 1h":              "banned [address] for 1h",
		"2001:db8::-2001:db8::5":                    "[address]-[address]",
		"sshd:192.0.2.7":                            "sshd:[address]",
		"added:192.0.2.7":                           "added:[address]",
		"sshd:2001:db8::7, added:2001:DB8::7.":      "sshd:[address], added:[address].",
		"2001:db8::7: 2001:db8::: ::, ::1":          "[address]: [address]: [address], [address]",
		"2001:db8:1:2:3:4:5:6/64 1:2:3:4:5:6:7:8:9": "[address] [address]",
		"0:0:0:0:0:ffff:192.0.2.7 ::ffff:192.0.2.7": "[address] [address]",
		"[2001:db8::7]:443 fe80::1%eth0 2001:db8::": "[[address]]:443 [address]%eth0 [address]",
		"192.0.2.0/24,192.0.2.7:80.x192.0.2.7y":     "[address],[address]:80.x[address]y",
		"1.192.0.2.7 192.000.002.007":               "[address] [address]",
		"192.0.2.1-192.0.2.9 (192.0.2.7)":           "[address]-[address] ([address])",
		"12:30:59 02:00:00:00:00:01: v1.2.3 a.b: 5": "12:30:59 02:00:00:00:00:01: v1.2.3 a.b: 5",
	} {
		if got := masked(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	draw := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var b [16]byte
		for i := range b {
			b[i] = byte(draw.Uint32() * (draw.Uint32() >> 31)) // half of them are zero
		}
		for _, a := range []netip.Addr{netip.AddrFrom16(b), netip.AddrFrom4([4]byte(b[:]))} {
			for _, form := range []string{"%s", "sshd:%s", "%s:", "(%s).", "%s/64", "%[1]s-%[1]s", "web.x:%s"} {
				if got := strings.ReplaceAll(masked(fmt.Sprintf(form, a)), "[address]", ""); strings.ContainsAny(strings.NewReplacer("sshd", "", "web", "").Replace(got), "0123456789bcdef") {
					t.Fatalf("%s as %s becomes %s", a, form, got)
				}
			}
		}
	}
}

// TestHangs posts to a server that accepts requests and never answers. The failure must be reported once, in words. The events must go to the next
// server.
func TestHangs(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	defer hanging.Close()
	defer close(end)
	events := 0
	good := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { events++ }))
	defer good.Close()
	var said []string
	hook := &policy.Webhook{URL: hanging.URL + "/?token=hidden"}
	s := &Sender{
		RunningPolicy: func(context.Context) (control.RunningPolicy, error) {
			return control.RunningPolicy{Daemon: policy.Daemon{Webhook: hook}}, nil
		},
		Events: api.NewEvents(), Report: func(text string, err error) { said = append(said, fmt.Sprint(text, err)) }, patience: 50 * time.Millisecond,
	}
	s.Events.Publish(api.KindDone, "one")
	for range 3 {
		s.due = time.Time{}
		s.step(t.Context())
	}
	if len(said) != 1 || !strings.Contains(said[0], "webhook: the server does not answer within 50ms") || strings.Contains(said[0], "hidden") {
		t.Errorf("reported %q", said)
	}
	hook = &policy.Webhook{URL: good.URL}
	s.step(t.Context())
	if events != 1 {
		t.Errorf("%d requests to a server that answers", events)
	}
}

// TestRetry checks that the wait after failures grows from a second to five minutes. A policy that names another server must take effect at once, and
// that server gets the waiting events. A policy without a server must end the wait, and later events are dropped.
func TestRetry(t *testing.T) {
	t.Parallel()
	var events int
	good := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var p Post
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			t.Error(err)
		}
		events += len(p.Events)
	}))
	defer good.Close()
	bad := &policy.Webhook{URL: "http://127.0.0.1:1/"}
	hook := bad
	s := &Sender{
		RunningPolicy: func(context.Context) (control.RunningPolicy, error) {
			return control.RunningPolicy{Daemon: policy.Daemon{Webhook: hook}}, nil
		},
		Events: api.NewEvents(), Report: func(string, error) {},
	}
	s.Events.Publish(api.KindDone, "one")
	for range 100 {
		began := time.Now()
		s.due = time.Time{}
		s.step(t.Context())
		if first, wait := s.fails == 1, s.due.Sub(began); wait < time.Second || time.Until(s.due) > mostWait || first && wait > 2*time.Second+answerTime {
			t.Fatalf("a wait of %v after %d failures", wait, s.fails)
		}
	}
	hook = &policy.Webhook{URL: good.URL}
	s.step(t.Context())
	if events != 1 || s.fails != 0 {
		t.Errorf("another server is told %d events, after %d failures", events, s.fails)
	}
	s.Events.Publish(api.KindDone, "two")
	hook = bad
	s.step(t.Context())
	hook = nil
	s.step(t.Context())
	hook = &policy.Webhook{URL: good.URL}
	s.step(t.Context())
	if events != 1 || s.fails != 0 {
		t.Errorf("a new server is told %d events, after %d failures", events, s.fails)
	}
}
