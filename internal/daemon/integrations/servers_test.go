// SPDX-License-Identifier: Apache-2.0

package integrations

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/policy"
)

// authority signs the certificates of the servers. This process trusts the authority, as an operator's host trusts the system's CAs.
var authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "webhook")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		now := time.Now()
		made := certificate(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)})
		authority.cert, authority.key = made.Leaf, made.PrivateKey.(*ecdsa.PrivateKey)
		file := filepath.Join(dir, "ca.pem")
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate[0]})
		if err := errors.Join(os.WriteFile(file, text, 0o600), os.Setenv("SSL_CERT_FILE", file)); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

// certificate signs a certificate with the authority. If the authority does not exist yet, the certificate is self-signed.
func certificate(template *x509.Certificate) *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: fmt.Sprint("webhook ", template.SerialNumber)}
	parent, signer := authority.cert, authority.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// receiver is a server with an answer that the test sets. It records the requests.
type receiver struct {
	*testing.T
	answer atomic.Pointer[http.HandlerFunc] // nil: it accepts every request
	cert   atomic.Pointer[tls.Certificate]
	sent   atomic.Int64 // bytes of answers that were written

	mu  sync.Mutex
	got []Post
}

func newReceiver(t *testing.T) (*receiver, *httptest.Server) {
	r := &receiver{T: t}
	server := httptest.NewUnstartedServer(r)
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*r.cert.Load()}}, nil
	}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.trusted()
	server.StartTLS()
	t.Cleanup(server.Close)
	return r, server
}

// shows makes the server show a certificate for a name or an address, valid until a time.
func (r *receiver) shows(name string, addr net.IP, until time.Time) {
	c := &x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until}
	if name != "" {
		c.DNSNames = []string{name}
	}
	if addr != nil {
		c.IPAddresses = []net.IP{addr}
	}
	r.cert.Store(certificate(c))
}

func (r *receiver) trusted() {
	r.shows("localhost", net.IPv4(127, 0, 0, 1), time.Now().Add(time.Hour))
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if answer := r.answer.Load(); answer != nil {
		(*answer)(w, request)
		return
	}
	var p Post
	if err := json.NewDecoder(request.Body).Decode(&p); err != nil {
		r.Error(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, p)
}

// raw returns a handler that answers with given bytes. It writes once, and then repeats the bytes in again forever.
func (r *receiver) raw(once, again string, pause time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			r.Error(err)
			return
		}
		defer c.Close()
		for text := once; text != ""; text = again {
			n, err := io.WriteString(c, text)
			r.sent.Add(int64(n))
			if err != nil {
				return
			}
			time.Sleep(pause)
		}
	}
}

// sender posts the events of a test. It calls the steps of Run, without the waits between them.
type sender struct {
	*Sender
	said []string
}

func newSender(t *testing.T, url string) *sender {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hook := &policy.Webhook{URL: url, SecretFile: secret}
	s := &sender{}
	s.Sender = &Sender{
		RunningPolicy: func(context.Context) (control.RunningPolicy, error) {
			return control.RunningPolicy{Daemon: policy.Daemon{Webhook: hook}}, nil
		},
		Events: api.NewEvents(),
		Report: func(text string, err error) { s.said = append(s.said, fmt.Sprint(text, err)) },
	}
	return s
}

func (s *sender) now(t *testing.T) {
	s.due = time.Time{}
	s.step(t.Context())
}

// TestBadServers posts to broken or hostile servers. An error must be reported once, in a short text, and no redirect may be followed. Events must
// not wait for the server. The sender must not read an endless answer. It must try again within five minutes, even if the server requests a longer
// wait. When the server works again, it must get each event once, in order.
func TestBadServers(t *testing.T) {
	t.Parallel()
	var followed atomic.Int64
	elsewhere, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	other := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	other.Listener.Close()
	other.Listener = elsewhere
	other.Start()
	defer other.Close()
	const long = 1 << 20
	to := func(status int, url string) func(*receiver) http.HandlerFunc {
		return func(*receiver) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, url, status) }
		}
	}
	raw := func(once, again string, pause time.Duration) func(*receiver) http.HandlerFunc {
		return func(r *receiver) http.HandlerFunc { return r.raw(once, again, pause) }
	}
	for name, one := range map[string]struct {
		answer func(*receiver) http.HandlerFunc
		cert   func(*receiver)
		says   string // the expected error; "": the server accepts the events
		slow   bool
		named  bool // the policy names it by its host name
	}{
		"hangs":                     {answer: raw(" ", "\r", 20*time.Millisecond), says: "does not answer within 300ms", slow: true},
		"a byte at a time":          {answer: raw("H", "T", 20*time.Millisecond), says: "does not answer within 300ms", slow: true},
		"an endless body":           {answer: raw("HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", 4096), 0)},
		"an endless body, slow":     {answer: raw("HTTP/1.1 200 OK\r\n\r\n", "x", 20*time.Millisecond), slow: true},
		"an endless header":         {answer: raw("HTTP/1.1 200 OK\r\nX: ", strings.Repeat("x", 4096), 0), says: "exceeded 65536 bytes"},
		"endless headers":           {answer: raw("HTTP/1.1 200 OK\r\n", "X: y\r\n", 0), says: "exceeded 65536 bytes"},
		"endless early hints":       {answer: raw("HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n", 0), says: "exceeded 65536 bytes"},
		"a long reason":             {answer: raw("HTTP/1.1 500 \x1b[2J"+strings.Repeat("x", 60_000)+"\r\n\r\n", "", 0), says: "the server answers 500 Internal Server Error"},
		"no HTTP":                   {answer: raw(strings.Repeat("\x1b[2Jx", 10_000)+"\r\n\r\n", "", 0), says: "malformed HTTP"},
		"closes at once":            {answer: raw("", "", 0), says: "has closed the connection without an answer"},
		"closes within":             {answer: raw("HTTP/1.1 200", "", 0), says: "has closed the connection without an answer"},
		"302 elsewhere":             {answer: to(302, other.URL), says: "the server answers 302 Found, and redirects are not followed"},
		"307 elsewhere":             {answer: to(307, other.URL), says: "the server answers 307"},
		"308 to the metadata":       {answer: to(308, "http://169.254.169.254/latest/meta-data"), says: "the server answers 308"},
		"a name of another server":  {cert: func(r *receiver) { r.shows("other.example", nil, time.Now().Add(time.Hour)) }, says: "certificate"},
		"a name for a terminal":     {cert: func(r *receiver) { r.shows("\x1b[2J\n"+strings.Repeat("evil", 20), nil, time.Now().Add(time.Hour)) }, says: `is not for the name "localhost"`, named: true},
		"a code without a text":     {answer: raw("HTTP/1.1 520 Evil\r\nContent-Length: 0\r\n\r\n", "", 0), says: "the server answers 520"},
		"a certificate that is old": {cert: func(r *receiver) { r.shows("", net.IPv4(127, 0, 0, 1), time.Now().Add(-time.Hour)) }, says: "expired"},
		"Retry-After of a year": {answer: func(*receiver) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "31536000")
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}, says: "the server answers 503 Service Unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			r, server := newReceiver(t)
			address := server.URL
			if one.named {
				address = strings.Replace(address, "127.0.0.1", "localhost", 1)
			}
			s := newSender(t, address+"/?token=hidden")
			if one.answer != nil {
				answer := one.answer(r)
				r.answer.Store(&answer)
			}
			if one.cert != nil {
				one.cert(r)
			}
			if one.slow {
				s.patience = 300 * time.Millisecond
			}
			for i := range 3 {
				s.Events.Publish(api.KindDone, fmt.Sprint("number ", i))
				s.now(t)
				for ; one.says == "" && s.fails > 0 && one.slow && s.patience < time.Minute; s.patience *= 2 { // on a busy machine the header comes late
					s.now(t)
					s.said = nil
				}
			}
			if one.says == "" {
				if len(s.said) != 0 || s.fails != 0 {
					t.Errorf("said %q", s.said)
				}
			} else if len(s.said) != 1 || !strings.Contains(s.said[0], one.says) || len(s.said[0]) > 400 || strings.ContainsAny(s.said[0], "\x1b\n") || strings.HasSuffix(s.said[0], " ") || strings.Contains(s.said[0], "hidden") {
				t.Errorf("said %.1000q, want %q", s.said, one.says)
			}
			if n := r.sent.Load(); n > 64*long { // the buffers of both sockets take this many bytes; a server can send far more in 10 s
				t.Errorf("%d bytes of answers were taken", n)
			}
			if wait := time.Until(s.due); wait > mostWait {
				t.Errorf("the server is asked again in %v", wait)
			}
			s.patience = 0
			r.answer.Store(nil)
			r.trusted()
			s.Events.Publish(api.KindDone, "number 3")
			s.now(t)
			var texts []string
			for _, p := range r.got {
				if p.Lost != 0 {
					t.Errorf("the server is told that %d events are lost", p.Lost)
				}
				for _, e := range p.Events {
					texts = append(texts, e.Text)
				}
			}
			want := "number 0,number 1,number 2,number 3"
			if one.says == "" {
				want = "number 3"
			}
			if got := strings.Join(texts, ","); got != want {
				t.Errorf("the server has taken %s, want %s", got, want)
			}
			if one.says != "" && (len(s.said) != 2 || !strings.Contains(s.said[1], "it answers again; 0 events were lost")) {
				t.Errorf("then said %.1000q", s.said)
			}
		})
	}
	if followed.Load() != 0 {
		t.Errorf("%d requests to the server of a redirect", followed.Load())
	}
}

// TestEventsDoNotWait publishes more events than are kept while the server does not answer a request. Then the server fails for long. The loss of
// events must be reported while the server fails, and their number when the server works again. The last events must arrive in order, with the number
// of lost events.
func TestEventsDoNotWait(t *testing.T) {
	t.Parallel()
	r, server := newReceiver(t)
	s := newSender(t, server.URL)
	asked, answer := make(chan bool), make(chan bool)
	hangs := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- true
		<-answer
		w.WriteHeader(http.StatusInternalServerError)
	})
	r.answer.Store(&hangs)
	s.Events.Publish(api.KindDone, "first")
	stepped := make(chan bool)
	go func() {
		s.now(t)
		close(stepped)
	}()
	select {
	case <-asked:
	case <-stepped:
		t.Fatalf("the server was not asked; said %q", s.said)
	}
	for i := range 2000 {
		s.Events.Publish(api.KindDone, fmt.Sprint("number ", i))
	}
	answer <- true
	<-stepped
	fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	r.answer.Store(&fails)
	for i := range 100 {
		s.Events.Publish(api.KindDone, fmt.Sprint("later ", i))
		s.now(t)
	}
	if len(s.said) != 2 || !strings.Contains(s.said[0], "answers 500") || !strings.Contains(s.said[1], "1490 events are lost") {
		t.Fatalf("said %q", s.said)
	}
	r.answer.Store(nil)
	for range 6 {
		s.now(t)
	}
	next := uint64(2101 - 512 + 1)
	for i, p := range r.got {
		if want := next - 1; i == 0 && p.Lost != want || i > 0 && p.Lost != 0 {
			t.Errorf("request %d: %d events are lost, want %d", i, p.Lost, want)
		}
		for _, e := range p.Events {
			if e.ID != next {
				t.Fatalf("event %d, want %d", e.ID, next)
			}
			next++
		}
	}
	if next != 2102 || len(s.said) != 3 || !strings.Contains(s.said[2], "it answers again; 1589 events were lost") {
		t.Errorf("the next event is %d; said %q", next, s.said)
	}
}

// TestLossesOfServers loses events at a server that fails, and then at another server that the policy names. The losses at each server must be
// reported, and the second server must be told only of its own losses. A new secret for the same server must not reset that server's losses.
func TestLossesOfServers(t *testing.T) {
	t.Parallel()
	fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	before, old := newReceiver(t)
	before.answer.Store(&fails)
	r, other := newReceiver(t)
	r.answer.Store(&fails)
	s := newSender(t, old.URL)
	hook := policy.Webhook{URL: old.URL}
	s.RunningPolicy = func(context.Context) (control.RunningPolicy, error) {
		of := hook
		return control.RunningPolicy{Daemon: policy.Daemon{Webhook: &of}}, nil
	}
	lose := func(n int, want ...string) {
		t.Helper()
		s.said = nil
		s.now(t) // the server that the policy names now has failed before
		for i := range n {
			s.Events.Publish(api.KindDone, fmt.Sprint("number ", i))
		}
		s.now(t)
		if len(s.said) != len(want) {
			t.Fatalf("said %q, want %q", s.said, want)
		}
		for i := range want {
			if !strings.Contains(s.said[i], want[i]) {
				t.Errorf("said %q, want %q", s.said[i], want[i])
			}
		}
	}
	s.Events.Publish(api.KindDone, "first")
	lose(600, "answers 500", "89 events are lost")
	hook.URL = other.URL
	lose(100, "answers 500", "100 events are lost")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hook.SecretFile = secret
	r.answer.Store(nil)
	s.now(t)
	if len(r.got) != 1 || r.got[0].Lost != 100 {
		t.Errorf("%d posts came, of which the first is %.200v", len(r.got), r.got)
	}
}

// TestWebhookEnd ends the daemon while events wait to be sent. The number of these events must be reported. Without waiting events nothing must be
// reported.
func TestWebhookEnd(t *testing.T) {
	t.Parallel()
	r, server := newReceiver(t)
	fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	for _, one := range []struct {
		answer *http.HandlerFunc
		want   string
	}{{&fails, "3 events were not sent"}, {nil, ""}} {
		r.answer.Store(one.answer)
		s := newSender(t, server.URL)
		ctx, end := context.WithCancel(t.Context())
		for range 3 {
			s.Events.Publish(api.KindDone, "one")
		}
		running := s.RunningPolicy
		looks := 0
		s.RunningPolicy = func(ctx context.Context) (control.RunningPolicy, error) {
			if looks++; looks == 2 { // after the first request
				end()
			}
			return running(ctx)
		}
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		if said := strings.Join(s.said, "\n"); (one.want == "") != (said == "") || !strings.Contains(said, one.want) {
			t.Errorf("said %q, want %q", s.said, one.want)
		}
	}
}
