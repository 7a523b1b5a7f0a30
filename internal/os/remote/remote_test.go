// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/floodwall/floodwall/internal/os/remote"
)

// hostile is a name in a certificate with control characters for a terminal.
var hostile = "a\x1b[2Jb\x7fc\n" + strings.Repeat("evil", 20) + ".example"

// show starts a server with a self-signed certificate, and returns the error of a request to it under the name list.example. If believed is set, the
// client trusts the signer of the certificate.
func show(t *testing.T, cert *x509.Certificate, believed bool) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert.SerialNumber, cert.Subject = big.NewInt(1), pkix.Name{CommonName: hostile}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	pool := x509.NewCertPool()
	if parsed, err := x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	} else if believed {
		pool.AddCert(parsed)
	}
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		},
	}}
	answer, err := client.Get("https://list.example/?key=hidden")
	if err == nil {
		answer.Body.Close()
		t.Fatal("the certificate is accepted")
	}
	return err
}

// TestCertificates sends requests to servers by name. Their certificates contain names and subjects with control characters for a terminal. The
// errors must have Floodwall's own texts.
func TestCertificates(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name     string
		cert     x509.Certificate
		believed bool
		want     string
	}{
		{"another name", x509.Certificate{DNSNames: []string{hostile}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}, true,
			`the certificate of the server is not for the name "list.example"`},
		{"an unknown authority", x509.Certificate{DNSNames: []string{"list.example", hostile}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}, false,
			"the certificate of the server is signed by an authority that this host does not know"},
		{"an old one", x509.Certificate{DNSNames: []string{"list.example", hostile}, NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(-time.Hour)}, true,
			"the certificate of the server, or of its authority, has expired or is not valid yet by the clock of this host"},
		{"one for clients", x509.Certificate{DNSNames: []string{"list.example", hostile}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true,
			"the certificate of the server, or of its authority, is not valid for this server"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := remote.Why(show(t, &c.cert, c.believed)); got != c.want {
				t.Errorf("it says %q, want %q", got, c.want)
			}
		})
	}
}

// TestWhy checks errors that contain texts from servers.
func TestWhy(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"malformed \x1b[2J", "\x00\x7f\u009b\xff", strings.Repeat("é\n", 5000)} {
		got := remote.Why(fmt.Errorf("read: %w", errors.New(text)))
		if len([]rune(got)) > 200 || strings.IndexFunc(got, unicode.IsControl) >= 0 || !strings.HasPrefix(got, "read: ") {
			t.Errorf("of %.60q it says %q", text, got)
		}
	}
}

// TestStatus checks status codes with a standard text, and one without.
func TestStatus(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]string{404: "404 Not Found", 520: "520"} {
		if got := remote.Status(code); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
