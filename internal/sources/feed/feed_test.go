// SPDX-License-Identifier: Apache-2.0

package feed_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"aead.dev/minisign"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/test/testutil"
)

// inside is an address that the test treats as internal. All other addresses of the loopback device count as addresses of the Internet.
var inside = netip.MustParseAddr("127.0.0.2")

// scene is a server whose answers a test chooses, and a store.
type scene struct {
	*testing.T
	answer  atomic.Value // http.HandlerFunc
	asked   atomic.Int64
	source  feed.Source
	store   feed.Store
	fetcher feed.Fetcher
}

func newScene(t *testing.T) *scene {
	t.Parallel()
	s := &scene{T: t, store: feed.Store{Dir: t.TempDir()}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		s.answer.Load().(http.HandlerFunc)(w, r)
	}))
	t.Cleanup(server.Close)
	s.source = feed.Source{Set: "drop", URL: server.URL + "/drop.txt", Every: 12 * time.Hour, Shrink: feed.DefaultShrink, Grow: feed.DefaultGrow}
	s.fetcher = feed.Fetcher{Bytes: 1 << 20, Time: 20 * time.Second, Inside: func(a netip.Addr) bool { return a == inside }}
	return s
}

func (s *scene) serve(answer http.HandlerFunc) { s.answer.Store(answer) }

// text makes the server answer with a body.
func (s *scene) text(body string) {
	s.serve(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) })
}

// refresh fetches the list. It compares the outcome, or the text of the error, with the expected one.
func (s *scene) refresh(outcome feed.Outcome, says string) {
	s.Helper()
	got, err := s.store.Refresh(s.Context(), &s.fetcher, s.source, true)
	switch {
	case says == "" && err != nil:
		s.Fatal(err)
	case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
		s.Fatalf("the error is %v, not one that says %q", err, says)
	case got != outcome:
		s.Fatalf("the outcome is %q, not %q", got, outcome)
	}
}

// holds fails the test if the prefixes of the stored copy differ from want.
func (s *scene) holds(want string) {
	s.Helper()
	c, set, err := s.store.Copy(s.source)
	if err != nil || c == nil {
		s.Fatal(c, err)
	}
	var texts []string
	for p := range set.Prefixes() {
		texts = append(texts, addrs.PrefixText(p))
	}
	if got := strings.Join(texts, " "); got != want {
		s.Fatalf("the copy has %s, not %s", got, want)
	}
}

// stands compares the state of the source with the expected one, and returns the status.
func (s *scene) stands(want feed.State) feed.Status {
	s.Helper()
	status := s.store.Status(s.source)
	if status.State != want {
		s.Fatalf("it stands as %q (%s), not %q", status.State, status.Why, want)
	}
	return status
}

const good = "# a list\n1.2.3.4\n5.6.0.0/16 ; SBL1\n2a00:1::/32\n"

// TestMisbehaving checks servers that violate the rules in many ways. The copy must stay, and a short error must state the cause.
func TestMisbehaving(t *testing.T) {
	gzipped := func(n int) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		for range n {
			w.Write(make([]byte, 1<<20))
		}
		w.Close()
		return b.Bytes()
	}
	for _, c := range []struct {
		name, says string
		answer     http.HandlerFunc
	}{
		{"HTML", "HTML", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "\n <!DOCTYPE html><p>1.2.3.4") }},
		{"most addresses", "more than three quarters of all IPv4 addresses", func(w http.ResponseWriter, _ *http.Request) {
			for n := range 230 {
				fmt.Fprintf(w, "%d.0.0.0/8\n", 11+n)
			}
		}},
		{"truncated", "ended early", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, "9.9.9.9\n")
		}},
		{"slow", "took too long", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				io.WriteString(w, "9.9.9.9\n")
				w.(http.Flusher).Flush()
				time.Sleep(20 * time.Millisecond)
			}
		}},
		{"endless", "more than 1048576 bytes", func(w http.ResponseWriter, _ *http.Request) {
			for line := bytes.Repeat([]byte("9.9.9.9\n"), 1000); ; {
				if _, err := w.Write(line); err != nil {
					return
				}
			}
		}},
		{"a body of 10 GB", "10000000000 bytes", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "10000000000") }},
		{"gzip bomb of the transport", "more than 1048576 bytes", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(gzipped(20))
		}},
		{"gzip bomb in a file", "unpacks to more than 1048576 bytes", func(w http.ResponseWriter, _ *http.Request) { w.Write(gzipped(20)) }},
		{"redirect inside", "redirects to 127.0.0.2", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.2:1/latest/meta-data", http.StatusFound)
		}},
		{"redirects in a circle", "more than 5 times", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/drop.txt", http.StatusFound) }},
		{"missing", "404", http.NotFound},
		{"not modified, for who has asked for all", "304 Not Modified", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }},
		{"a reason to steer a terminal", "the server answers 500 Internal Server Error", raw("HTTP/1.1 500 \x1b[2J"+strings.Repeat("x", 60_000)+"\r\n\r\n", "")},
		{"no HTTP", "malformed HTTP", raw(strings.Repeat("\x1b[2Jx", 10_000)+"\r\n\r\n", "")},
		{"an endless header", "exceeded 65536 bytes", raw("HTTP/1.1 200 OK\r\nX: ", strings.Repeat("x", 4096))},
		{"closes at once", "EOF", raw("", "")},
		{"a code without a text", "the server answers 520", raw("HTTP/1.1 520 Evil\r\nContent-Length: 0\r\n\r\n", "")},
		{"empty", "has no entry", func(http.ResponseWriter, *http.Request) {}},
		{"nothing left", "nothing is left", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "10.0.0.1\n") }},
		{"two of a hundred lines unreadable", "2 of 102 lines", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, strings.Repeat("9.9.9.9\n", 100)+"github.com\nx\n")
		}},
		{"too many entries", "more than 5 entries", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("9.9.9.9\n", 6)) }},
		{"a range of too many prefixes", "more than 20 entries", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "2a00::1-2a00:7fff:ffff:ffff:ffff:ffff:ffff:fffe\n")
		}},
		{"too many prefixes are left", "more than 5 entries", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "192.0.0.0/16\n") }},
		{"another body than the hash says", "SHA-256", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, good) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			s.text(good)
			s.refresh(feed.Changed, "")
			s.source.Shrink = 0 // the list must not be held because it has shrunk
			switch c.name {
			case "slow":
				s.fetcher.Time = 300 * time.Millisecond
			case "too many entries", "too many prefixes are left":
				s.source.Max = 5
			case "a range of too many prefixes":
				s.source.Max = 20
			case "another body than the hash says", "nothing left": // these are other sources, which have no copy
				if c.name[0] == 'a' {
					s.source.SHA256 = strings.Repeat("0", 64)
				}
				s.source.Set = "other"
				s.serve(c.answer)
				s.refresh("", c.says)
				if got, _, _ := s.store.Copy(s.source); got != nil {
					t.Error("there is a copy")
				}
				s.stands(feed.StateNone)
				return
			}
			s.serve(c.answer)
			s.refresh("", c.says)
			s.holds("1.2.3.4 5.6.0.0/16 2a00:1::/32")
			status := s.stands(feed.StateFailing)
			if len(status.Why) > 400 || strings.Contains(status.Why, "\x1b") || strings.HasSuffix(status.Why, " ") {
				t.Errorf("it says %.1000q", status.Why)
			}
			if wait := time.Until(*status.Next); wait < 4*time.Minute || wait > 70*time.Minute {
				t.Errorf("it is tried again in %v", wait)
			}
			s.text(good)
			s.refresh(feed.Unchanged, "")
			s.stands(feed.StateOK)
		})
	}
}

// TestConditional checks that an unchanged list is not sent again. The server recognizes it by its ETag or its modification time.
func TestConditional(t *testing.T) {
	s := newScene(t)
	bodies := 0
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Last-Modified", "Sun, 22 Nov 2026 10:00:00 GMT")
		if r.Header.Get("If-None-Match") == `"1"` && r.Header.Get("If-Modified-Since") == "Sun, 22 Nov 2026 10:00:00 GMT" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		bodies++
		io.WriteString(w, good)
	})
	s.refresh(feed.Changed, "")
	s.refresh(feed.Unchanged, "")
	if bodies != 1 {
		t.Errorf("the body was sent %d times", bodies)
	}
	asked := s.asked.Load()
	if got, err := s.store.Refresh(t.Context(), &s.fetcher, s.source, false); got != feed.NotDue || err != nil {
		t.Error(got, err)
	}
	if s.asked.Load() != asked {
		t.Error("it was fetched before it was due")
	}
	if wait := time.Until(*s.stands(feed.StateOK).Next); wait < s.source.Every-time.Minute || wait > s.source.Every*11/10 {
		t.Errorf("it is fetched again in %v", wait)
	}
}

// TestRetryAfter checks that a server that asks for a wait is not contacted before its end, even if a user asks for a fetch.
func TestRetryAfter(t *testing.T) {
	s := newScene(t)
	s.serve(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7200")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	s.refresh("", "429")
	asked := s.asked.Load()
	s.refresh(feed.NotDue, "asked to be left alone for another")
	if s.asked.Load() != asked {
		t.Error("the server was asked again")
	}
	if wait := time.Until(*s.store.Status(s.source).Next); wait < 119*time.Minute {
		t.Errorf("it is tried again in %v", wait)
	}
}

// TestBackoff checks that the wait after failures doubles, up to the period.
func TestBackoff(t *testing.T) {
	s := newScene(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	s.source.URL = "http://" + closed.Addr().String()
	for _, want := range []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, 80 * time.Minute,
		160 * time.Minute, 320 * time.Minute, 640 * time.Minute, 12 * time.Hour, 12 * time.Hour} {
		s.refresh("", "refused")
		if wait := time.Until(*s.store.Status(s.source).Next); wait < want-10*time.Second || wait > want*11/10 {
			t.Errorf("it is tried again in %v, not in %v and a tenth more at most", wait, want)
		}
	}
}

// TestScreen checks that addresses that no external list may contain are removed, and that the reasons are reported.
func TestScreen(t *testing.T) {
	s := newScene(t)
	s.text("10.0.0.6\n192.168.1.30\n127.0.0.1\n38.0.0.0/7\n2000::/3\n9.0.0.0/8\n::ffff:8.8.8.8\n1.2.3.4/24\n203.0.112.0/22\n")
	s.refresh(feed.Changed, "")
	s.holds("1.2.3.0/24 8.8.8.8 9.0.0.0/8 203.0.112.0/24 203.0.114.0/23")
	want := "10.0.0.6 and 3 more (not routed on the Internet), 38.0.0.0/7 and 1 more (too large)"
	if got := s.stands(feed.StateOK).Reasons; got != want {
		t.Errorf("removed: %s, not %s", got, want)
	}
}

// TestHeld checks that a list is held until it is accepted if it shrinks to less than half or grows to more than three times its size.
func TestHeld(t *testing.T) {
	list := func(n int) (text string) {
		for i := range n {
			text += fmt.Sprintf("9.9.%d.9\n", 2*i)
		}
		return text
	}
	s := newScene(t)
	s.text(list(10))
	s.refresh(feed.Changed, "")
	s.text("# a list\n")
	s.refresh("", "has no entry")
	s.stands(feed.StateFailing)
	for _, n := range []int{4, 31} {
		s.text(list(n))
		s.refresh(feed.Held, "")
		if got := s.stands(feed.StateHeld); got.Entries != 10 || got.HeldSize != n || got.Why == "" {
			t.Errorf("%+v", got)
		}
	}
	if ok, err := s.store.Accept(t.Context(), s.source); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if got := s.stands(feed.StateOK); got.Entries != 31 {
		t.Errorf("%d entries", got.Entries)
	}
	if ok, err := s.store.Accept(t.Context(), s.source); ok || err != nil {
		t.Fatal(ok, err)
	}
	s.text(list(16))
	s.refresh(feed.Changed, "")
	s.text(list(3))
	s.refresh(feed.Held, "")
	s.text(list(17)) // the list has its usual size again, so no list may be held
	s.refresh(feed.Changed, "")
	s.stands(feed.StateOK)
}

func TestFormats(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"list", "1.1.1.1 comment\n2.2.2.0/24;x\n3.3.3.3 - 3.3.3.4\n", "1.1.1.1 2.2.2.0/24 3.3.3.3 3.3.3.4"},
		{"tabs of ipsum", "# ipsum\n1.1.1.1\t11\n2.2.2.2\t10\n", "1.1.1.1 2.2.2.2"},
		{"csv of ranges", "\"first\",\"last\",\"country\"\n\"1.1.1.0\",\"1.1.1.255\",\"XX\"\n2.2.2.2,2.2.2.3,YY\n", "1.1.1.0/24 2.2.2.2/31"},
		{"P2P", "# made by hand\nOne, Inc. #1:1.1.1.0-1.1.1.255\nTwo:2.2.2.2-2.2.2.3\n", "1.1.1.0/24 2.2.2.2/31"},
		{"csv of prefixes", "1.1.1.0/24,DROP\n2a00:1::/32,DROP\n", "1.1.1.0/24 2a00:1::/32"},
		{"ndjson", `{"cidr":"1.10.16.0/20","sblid":"SBL256894","rir":"apnic"}` + "\n" + `{"type":"metadata","records":1}` + "\n", "1.10.16.0/20"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			s.text("\ufeff" + c.body)
			s.refresh(feed.Changed, "")
			s.holds(c.want)
		})
	}
}

func TestSHA256(t *testing.T) {
	s := newScene(t)
	sum := sha256.Sum256([]byte(good))
	s.source.SHA256 = hex.EncodeToString(sum[:])
	s.text(good)
	s.refresh(feed.Changed, "")
}

// TestMinisign checks that a list is rejected if its signature is not from the policy's key, or if it has no signature.
func TestMinisign(t *testing.T) {
	s := newScene(t)
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, stranger, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, _ := public.MarshalText()
	s.source.Minisign = strings.Fields(string(key))[len(strings.Fields(string(key)))-1]
	signed := func(by *minisign.PrivateKey) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !strings.HasSuffix(r.URL.Path, ".minisig"):
				io.WriteString(w, good)
			case by == nil:
				http.NotFound(w, r)
			default:
				w.Write(minisign.Sign(*by, []byte(good)))
			}
		}
	}
	s.serve(signed(&stranger))
	s.refresh("", "signature is not that of the key")
	s.serve(signed(nil))
	s.refresh("", "404")
	s.serve(signed(&private))
	s.refresh(feed.Changed, "")
	s.holds("1.2.3.4 5.6.0.0/16 2a00:1::/32")
}

// TestDamaged damages a copy on the disk. It must count as missing, and the complete list must be fetched again.
func TestDamaged(t *testing.T) {
	s := newScene(t)
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		io.WriteString(w, good)
	})
	s.refresh(feed.Changed, "")
	c, _, err := s.store.Copy(s.source)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(c.File)
	if err == nil {
		err = os.WriteFile(c.File, bytes.Replace(text, []byte("5.6.0.0"), []byte("5.7.0.0"), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.refresh(feed.Changed, "")
	s.holds("1.2.3.4 5.6.0.0/16 2a00:1::/32")
}

// killVar is an environment variable of the process that TestKilled kills. It has the URL and the directory of the store.
const killVar = "FLOODWALL_TEST_FEED"

// TestKilled kills a process at random moments of a fetch. The store must contain the complete old copy or the complete new one.
func TestKilled(t *testing.T) {
	if where := os.Getenv(killVar); where != "" {
		address, dir, _ := strings.Cut(where, " ")
		refreshForever(t, feed.Source{Set: "drop", URL: address, Every: time.Hour, Shrink: 50, Grow: 300}, feed.Store{Dir: dir})
		return
	}
	s := newScene(t)
	lists := []string{strings.Repeat("1.2.3.4\n", 1)}
	lists = append(lists, "")
	for i := range 2000 {
		lists[1] += fmt.Sprintf("9.%d.%d.9\n", i/100, 2*(i%100))
	}
	var turn atomic.Int64
	s.serve(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, lists[turn.Add(1)%2]) })
	s.source.Shrink, s.source.Grow = 0, 0
	s.refresh(feed.Changed, "")
	random := testutil.Random(t)
	for range testutil.Scaled(8, 200) {
		child := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		child.Env = append(os.Environ(), killVar+"="+s.source.URL+" "+s.store.Dir)
		asked := s.asked.Load()
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		for begin := time.Now(); s.asked.Load() < asked+3; time.Sleep(time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatal("the process does not fetch")
			}
		}
		time.Sleep(time.Duration(random.IntN(5000)) * time.Microsecond)
		child.Process.Kill()
		child.Wait()
		c, set, err := s.store.Copy(s.source)
		if err != nil || c == nil {
			t.Fatalf("no copy: %v", err)
		}
		if n := set.Size(); n != 1 && n != 2000 {
			t.Fatalf("the copy has %d ranges", n)
		}
	}
	if _, err := s.store.Refresh(t.Context(), &s.fetcher, s.source, true); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(s.store.Dir + "/*/*")
	if err != nil || len(left) > 5 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func refreshForever(t *testing.T, s feed.Source, store feed.Store) {
	s.Shrink, s.Grow = 0, 0
	for {
		if _, err := store.Refresh(t.Context(), &feed.Fetcher{}, s, true); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// TestStale checks that a copy is stale if it has not been confirmed for three periods, whether fetches failed or there were none.
func TestStale(t *testing.T) {
	s := newScene(t)
	s.text(good)
	s.refresh(feed.Changed, "")
	s.source.Every = time.Nanosecond
	if got := s.stands(feed.StateStale); got.Entries != 3 {
		t.Errorf("%+v", got)
	}
}
