// SPDX-License-Identifier: Apache-2.0

package integrations

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/floodwall/floodwall/policy"
)

const whole = `{"deleted":[{"id":1}],"later":{"x":[1]},"new":[{"id":7,"duration":"4h","scenario":"s","scope":"Ip","type":"ban","value":"192.0.2.7"}]}`

// TestServers sends requests to misbehaving servers. No part of a broken answer may be used, and each error must say what is wrong.
func TestServers(t *testing.T) {
	write := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/other")
			w.WriteHeader(code)
		}
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, one := range map[string]struct {
		serve http.HandlerFunc
		want  string
	}{
		"whole":     {write(whole), ""},
		"empty":     {write(`{"new":null,"deleted":null}`), ""},
		"truncated": {write(whole[:len(whole)-30]), "not whole"},
		"no end":    {write(whole[:len(whole)-1]), "not whole"},
		"nothing":   {write(""), "not whole"},
		"other":     {write(`{"message":"hello"}`), "neither new nor deleted"},
		"list":      {write(`[]`), "in place of {"},
		"text":      {write(`{"new":"all"}`), "in place of a list"},
		"html":      {write(`<html>`), "not whole"},
		"403":       {status(403), "does not accept the key in " + file},
		"401":       {status(401), "does not accept the key in " + file},
		"404":       {status(404), "404"},
		"500":       {status(500), "answers 500"},
		"redirect":  {status(302), "which is not followed"},
		"520":       {status(520), "answers 520"},
		"terminal":  {write("{\"new\":\"\\u001b[2J\"}"), "in place of a list"},
		"reason": {func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			io.WriteString(c, "HTTP/1.1 500 \x1b[2J\r\nContent-Length: 0\r\n\r\n")
		}, "answers 500 Internal Server Error"},
		"huge": {func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"new":[],"x":"`)
			block := bytes.Repeat([]byte("a"), 1<<20)
			for range 10 << 10 {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}, "more than 128 MB"},
		"number": {write(`{"new":[{"id":` + strings.Repeat("9", 1<<20) + `}]}`), "not whole"},
		"many": {func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"new":[{}`)
			block := bytes.Repeat([]byte(",{}"), 1<<16)
			for range 1 << 10 {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}, "more than 1000000 decisions"},
		"cut": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, whole[:50])
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "not whole"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/other" || r.Header.Get("X-Api-Key") != "secret" || r.URL.Query().Get("startup") != "true" {
					t.Errorf("a request of %s with %v", r.URL, r.Header)
				}
				one.serve(w, r)
			}))
			defer server.Close()
			c, err := newClient(policy.CrowdSec{URL: server.URL, KeyFile: file})
			if err != nil {
				t.Fatal(err)
			}
			a, err := c.ask(t.Context(), true)
			if one.want == "" && err != nil || one.want != "" && (err == nil || !strings.Contains(err.Error(), one.want)) {
				t.Errorf("%v, want an error with %q", err, one.want)
			}
			if text := fmt.Sprint(err); len(text) > 1000 || strings.Contains(text, "\x1b") || strings.HasSuffix(text, " ") {
				t.Errorf("an error of %d bytes: %.1000q", len(text), text)
			}
			if name == "whole" != (len(a.fresh) == 1) {
				t.Errorf("%d decisions", len(a.fresh))
			}
			var hinted interface{ Hint() string }
			if strings.HasPrefix(name, "40") && (!errors.As(err, &hinted) || hinted.Hint() == "") {
				t.Errorf("no hint: %v", err)
			}
		})
	}
}

// TestNameOfCrowdSec connects to a server whose certificate has a name with control characters for a terminal.
func TestNameOfCrowdSec(t *testing.T) {
	t.Parallel()
	r, server := newReceiver(t)
	r.shows("\x1b[2J\n"+strings.Repeat("evil", 20), nil, time.Now().Add(time.Hour))
	c, err := newClient(policy.CrowdSec{URL: strings.Replace(server.URL, "127.0.0.1", "localhost", 1)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.ask(t.Context(), true)
	want := "crowdsec: " + c.of.URL + ": the certificate of the server is not for the name \"localhost\""
	if fmt.Sprint(err) != want {
		t.Errorf("it says %q, want %q", fmt.Sprint(err), want)
	}
}

// TestBook applies answers of the server in order, and compares the decisions in force.
func TestBook(t *testing.T) {
	now := time.Now()
	b := newBook()
	ban := func(id int64, value, duration string) decision {
		return decision{ID: id, Scope: "Ip", Value: value, Type: "ban", Duration: duration, Scenario: fmt.Sprint("s", id)}
	}
	wanted := func(when, want string) {
		t.Helper()
		var got []string
		for p, e := range b.wanted() {
			got = append(got, fmt.Sprintf("%s %s %v", p, e.why, e.end.Sub(now)))
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: %s, want %s", when, text, want)
		}
	}
	b.take(answer{fresh: []decision{ban(1, "192.0.2.1", "1h"), ban(2, "192.0.2.1", "4h"), ban(2, "192.0.2.1", "4h")}}, now)
	wanted("two decisions", "192.0.2.1/32 s2 4h0m0s")
	b.take(answer{deleted: []decision{ban(2, "192.0.2.1", "-1s")}}, now)
	wanted("one left", "192.0.2.1/32 s1 1h0m0s")
	b.take(answer{}, now)
	wanted("an empty answer", "192.0.2.1/32 s1 1h0m0s")
	b.take(answer{fresh: []decision{ban(3, "192.0.2.3", "1h")}, deleted: []decision{ban(1, "192.0.2.1", "-1s"), ban(3, "192.0.2.3", "-1s")}}, now)
	wanted("new and deleted in one answer", "")
	simulated := ban(6, "192.0.2.6", "1h")
	simulated.Simulated = true
	b.take(answer{fresh: []decision{
		simulated, ban(4, "192.0.2.4", "-1h"), ban(5, "192.0.2.5%eth0", "1h"), ban(7, "", "1h"), ban(8, "192.0.2.8", "9999999999h"), ban(9, "192.0.2.9", ""),
		{ID: 10, Scope: "Range", Value: "192.0.2.0/99", Type: "ban", Duration: "1h"}, {ID: 11, Scope: "AS", Value: "1", Type: "ban", Duration: "1h"},
		{Scope: "Ip", Value: "192.0.2.12", Type: "ban", Duration: "1h"},
	}}, now)
	wanted("what is no ban", "")
	b.take(answer{fresh: []decision{{ID: 13, Scope: "range", Value: "2001:db8::1/32", Type: "ban", Duration: "1m", Scenario: "r"}, ban(14, "::ffff:192.0.2.14", "-2h")}}, now)
	wanted("a range", "2001:db8::/32 r 1m0s")
	b.expire(now.Add(2 * time.Minute))
	wanted("after its end", "")
	if len(b.of)+len(b.entries) > 0 {
		t.Errorf("left: %v %v", b.of, b.entries)
	}
}

// TestLongTexts parses decisions with huge texts. Only short texts may be kept.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	text := fmt.Sprintf(`{"new":[{"id":7,"duration":"4h","scenario":%[1]q,"scope":"ip","type":"ban","value":"192.0.2.7"},{"id":8,"duration":%[1]q,"scope":%[1]q,"type":%[1]q,"value":%[1]q}]}`, long)
	a, err := readAnswer(json.NewDecoder(strings.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range a.fresh {
		for _, text := range []string{d.Duration, d.Scenario, d.Scope, d.Type, d.Value} {
			if len(text) > 64 || !utf8.ValidString(text) {
				t.Errorf("decision %d keeps a text of %d bytes", d.ID, len(text))
			}
		}
	}
	b := newBook()
	b.take(a, time.Now())
	for p, e := range b.wanted() {
		if p.String() != "192.0.2.7/32" || len(e.why) > 64 {
			t.Errorf("%s is banned for a reason of %d bytes", p, len(e.why))
		}
	}
	if len(b.entries) != 1 {
		t.Errorf("%d decisions are in force", len(b.entries))
	}
	for _, bad := range []string{"%q", `{"new":%q}`} {
		if _, err := readAnswer(json.NewDecoder(strings.NewReader(fmt.Sprintf(bad, long)))); err == nil || len(err.Error()) > 200 {
			t.Errorf("%s: an error of %d bytes", bad, len(fmt.Sprint(err)))
		}
	}
}

// TestManyTexts uses a server that writes another text into each decision. The report must have only a few sentences, and must not be repeated.
func TestManyTexts(t *testing.T) {
	var said []string
	b := &Bouncer{Report: func(text string, _ error) { said = append(said, text) }, book: newBook(), said: map[string]bool{}}
	for turn := range 2 {
		var a answer
		for i := range 1000 {
			text := fmt.Sprint(turn, "x", i)
			a.fresh = append(a.fresh, decision{ID: 1, Type: text}, decision{ID: 2, Type: "ban", Duration: text},
				decision{ID: 3, Type: "ban", Duration: "1h", Scope: text}, decision{ID: 4, Type: "ban", Duration: "1h", Scope: "ip", Value: text},
				decision{ID: 5, Type: "ban", Duration: "1h", Scope: "range", Value: text}, decision{Type: "ban"}, decision{Simulated: true})
		}
		b.book.take(a, time.Now())
		b.tellIgnored()
	}
	if all := strings.Join(said, "\n"); len(said) != 7 || !strings.Contains(all, `1000 decisions of another type than ban are ignored, as "0x0"`) {
		t.Errorf("said %d sentences: %.2000s", len(said), all)
	}
}

// TestPause makes requests fail repeatedly. No pause may be longer than the maximum.
func TestPause(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 10 * time.Second, time.Hour} {
		b := &Bouncer{of: policy.CrowdSec{Every: every}}
		for b.fails = range 200 {
			if p := b.pause(); p > mostWait || p < time.Second/2 {
				t.Errorf("every %v: a pause of %v after %d failures", every, p, b.fails)
			}
		}
	}
}
