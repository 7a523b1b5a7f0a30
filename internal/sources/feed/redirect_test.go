// SPDX-License-Identifier: Apache-2.0

package feed_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/sources/feed"
)

// raw returns a handler that answers with raw bytes: first with the text once, and then with the text again, repeated without end.
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

// TestRedirectElsewhere checks a redirect to another server. That server must not receive the query of the list's URL, because it may contain a key.
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

// TestNamesOfCertificates redirects to a server by its host name. The server's certificate has other names, with control characters for a terminal.
// Neither the error nor the state of the list may repeat these names.
func TestNamesOfCertificates(t *testing.T) {
	s := newScene(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"\x1b[2J\n" + strings.Repeat("evil", 20)}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	other := httptest.NewUnstartedServer(http.NotFoundHandler())
	other.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	other.Config.ErrorLog = log.New(io.Discard, "", 0)
	other.StartTLS()
	t.Cleanup(other.Close)
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
	})
	s.refresh("", `the certificate of the server is not for the name "localhost"`)
	if why := s.stands(feed.StateNone).Why; strings.ContainsAny(why, "\x1b\n") || strings.Contains(why, "evil") {
		t.Errorf("it says %q", why)
	}
}
