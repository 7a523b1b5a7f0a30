package feed_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/sources/feed"
)

// raw answers with bytes of its own, the second text without an end.
func raw(once, again string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		for text := once; text != ""; text = again {
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
		}
	}
}

// A server that redirects elsewhere does not hand on what the address of the list has: a key may be in it.
func TestRedirectElsewhere(t *testing.T) {
	s := newScene(t)
	var got []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.RequestURI, fmt.Sprint(r.Header))
		io.WriteString(w, good)
	}))
	t.Cleanup(other.Close)
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/copy.txt", http.StatusFound)
	})
	s.source.URL += "?license=hidden"
	s.refresh(feed.Changed, "")
	s.holds("1.2.3.4 5.6.0.0/16 2a00:1::/32")
	if text := strings.Join(got, " "); strings.Contains(text, "hidden") || !strings.HasPrefix(text, "/copy.txt") {
		t.Errorf("the other server was asked %s", text)
	}
}
