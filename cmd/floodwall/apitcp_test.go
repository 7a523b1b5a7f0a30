// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/api"
)

// listening writes a policy with a key `daemon`, and returns its path.
func listening(t *testing.T, daemon string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	text := "devices: [fw0]\ndefault: pass\nchecks: off\nrules:\n  - {name: port7, proto: udp, port: 7, sample: 1/1, then: drop}\n"
	if daemon != "" {
		text += "daemon: {" + daemon + "}\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// reachable reports whether a server listens on a TCP address.
func reachable(address string) bool {
	c, err := net.Dial("tcp", address)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// TestAPILoopback uses a policy with `daemon: {listen: …}`. A request whose Host header names this host can read everything except packets. It can
// change nothing. The daemon must follow the policy to another port, and must stop listening when the policy has no `listen`.
func TestAPILoopback(t *testing.T) {
	if !inside(t) {
		return
	}
	if out := mustFloodwall(t, "apply", listening(t, "listen: 127.0.0.1:9810")); !strings.Contains(out, "nobody answers on 127.0.0.1:9810") {
		t.Errorf("apply without a daemon:\n%s", out)
	}
	h := startDaemon(t)
	waitFor(t, "an answer on 127.0.0.1:9810", func() bool { return reachable("127.0.0.1:9810") })
	if reachable("192.0.2.1:9810") {
		t.Error("it is reached by another address of the host")
	}
	for _, r := range api.Routes() {
		method, path := questionOf(r)
		request, err := http.NewRequest(method, "http://127.0.0.1:9810"+path, strings.NewReader("[]"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		response.Body.Close()
		if forbidden := response.StatusCode == http.StatusForbidden; forbidden != (r.Access != api.Read) {
			t.Errorf("%s %s: status %d", method, path, response.StatusCode)
		}
	}
	for host, want := range map[string]int{
		"127.0.0.1:9810": 200, "localhost:9810": 200, "[::1]:9810": 200, "evil.example": 421, "evil.example:9810": 421, "192.0.2.1:9810": 421,
	} {
		request, _ := http.NewRequest(http.MethodGet, "http://127.0.0.1:9810/v1/health", nil)
		request.Host = host
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("Host %s: status %d, want %d", host, response.StatusCode, want)
		}
	}
	for host, want := range map[string]int{"floodwall": 200, "localhost:9810": 200, "127.0.0.1:9810": 200, "evil.example:9810": 421, "evil.example.": 421} {
		for _, socket := range []string{readSocket, controlSocket} { // as a tunnel to a port of another host brings it
			request, _ := http.NewRequest(http.MethodGet, "http://floodwall/v1/health", nil)
			request.Host = host
			response, err := client(socket).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("Host %s on %s: status %d, want %d", host, socket, response.StatusCode, want)
			}
		}
	}
	if a := h.must(200, readSocket, "/"); !strings.HasPrefix(a.header.Get("Content-Security-Policy"), "default-src 'none'") || !strings.Contains(a.body, "<title>Floodwall") {
		t.Errorf("the page on the read socket: %v", a.header)
	}
	if out := mustFloodwall(t, "status"); !strings.Contains(out, "\npage http://127.0.0.1:9810/\n") {
		t.Errorf("status does not name the page:\n%s", out)
	}
	mustFloodwall(t, "apply", listening(t, `listen: "[::1]:9811"`))
	waitFor(t, "the other address", func() bool { return reachable("[::1]:9811") && !reachable("127.0.0.1:9810") })
	mustFloodwall(t, "apply", listening(t, ""))
	waitFor(t, "the end", func() bool { return !reachable("[::1]:9811") })
	h.must(200, readSocket, "/v1/health")
}

// authority signs certificates.
type authority struct {
	*testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes a certificate authority. Its certificate is in the file name.pem.
func newAuthority(t *testing.T, dir, name string) *authority {
	a := &authority{T: t, dir: dir}
	a.cert, a.key = a.issue(name, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue makes a certificate and a key, in the files name.pem and name.key.
func (a *authority) issue(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, certErr := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	keyDER, keyErr := x509.MarshalPKCS8PrivateKey(key)
	err = errors.Join(err, certErr, keyErr,
		os.WriteFile(filepath.Join(a.dir, name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(filepath.Join(a.dir, name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	if err != nil {
		a.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.Fatal(err)
	}
	return cert, key
}

// TestAPIRemote sends a request to every route from another host: with a certificate of the right authority, with a certificate of another authority,
// and without a certificate. The first client may read everything, including packets, but change nothing. The other two must get no answer at all.
// The daemon must use a renewed certificate without a restart.
func TestAPIRemote(t *testing.T) {
	if !inside(t) {
		return
	}
	dir := t.TempDir()
	ours, foreign := newAuthority(t, dir, "ca"), newAuthority(t, dir, "foreign")
	server := func() *x509.Certificate {
		cert, _ := ours.issue("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)}})
		return cert
	}
	server()
	clients := x509.ExtKeyUsageClientAuth
	ours.issue("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{clients}})
	foreign.issue("stranger", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{clients}})
	mustFloodwall(t, "apply", listening(t, "listen: 192.0.2.1:9810, tls: {cert: "+dir+"/server.pem, key: "+dir+"/server.key, client_ca: "+dir+"/ca.pem}"))
	h := startDaemon(t)
	waitFor(t, "an answer on 192.0.2.1:9810", func() bool { return reachable("192.0.2.1:9810") })
	pid := elsewhere(t)
	sh(t, "ip link set fw1 netns "+pid+"; nsenter --net="+otherNet+" sh -c 'ip addr add 192.0.2.2/24 dev fw1; ip link set fw1 up'")
	asks := func(name, method, path string) (status int, said string) {
		args := []string{"--net=" + otherNet, "curl", "--silent", "--show-error", "--max-time", "60", "--cacert", dir + "/ca.pem", "--request", method,
			"--write-out", "\n%{http_code}"}
		if name != "" {
			args = append(args, "--cert", dir+"/"+name+".pem", "--key", dir+"/"+name+".key")
		}
		if method == http.MethodPost {
			args = append(args, "--header", "Content-Type: application/json", "--data", "[]")
		}
		out, _ := exec.Command("nsenter", append(args, "https://192.0.2.1:9810"+path)...).CombinedOutput()
		return statusOf(out)
	}
	ended := regexp.MustCompile(`curl: \((35|52|55|56)\)`) // the connection ended in the handshake, or while the client sent or received: see libcurl-errors(3)
	before := h.commandStatus().Generation
	for _, r := range api.Routes() {
		method, path := questionOf(r)
		for _, name := range []string{"", "stranger"} {
			if status, said := asks(name, method, path); status != 0 || !ended.MatchString(said) {
				t.Errorf("%s %s with certificate %q: status %d, want the end of the connection: %s", method, path, name, status, said)
			}
		}
		own, err := request(client(controlSocket), method, path, questionBody(method))
		if err != nil {
			t.Fatal(err)
		}
		want := own.status
		if r.Access == api.Change {
			want = http.StatusForbidden
		}
		status, said := asks("client", method, path)
		if answers := []int{http.StatusOK, http.StatusInternalServerError}; strings.HasPrefix(path, "/v1/suggest") && slices.Contains(answers, own.status) &&
			slices.Contains(answers, status) {
			continue // each answer depends on the packets of its own time: it may suggest a rule or not
		}
		if status != want {
			t.Errorf("%s %s with a certificate: status %d, want %d: %s", method, path, status, want, said)
		}
	}
	if now := h.commandStatus().Generation; now != before {
		t.Errorf("generation %d runs, want %d", now, before)
	}
	renewed := server()
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(filepath.Join(dir, "server.pem"), later, later); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ours.cert)
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", "192.0.2.1:9810", &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if served := c.ConnectionState().PeerCertificates[0]; !served.Equal(renewed) {
		t.Errorf("after the renewal: certificate %v, want %v", served.SerialNumber, renewed.SerialNumber)
	}
}
