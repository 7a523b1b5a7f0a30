// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// nginxQuiet is configuration that prevents nginx from writing anything outside of its directory.
const nginxQuiet = `	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
`

// nginxConf runs nginx as one process that writes nothing outside of its directory. It speaks TLS in front of another server over the loopback
// device. All other settings are the defaults that Debian's own file leaves.
const nginxConf = `daemon off;
master_process off;
pid %[1]s/pid;
error_log stderr error;
worker_rlimit_nofile 16384;
events { worker_connections 8192; }
http {
` + nginxQuiet + `	server {
		listen %[2]s ssl;
		ssl_certificate %[1]s/cert.pem;
		ssl_certificate_key %[1]s/key.pem;
		location / { proxy_pass http://%[3]s; }
	}
}
`

// plainNginxConf runs nginx as one process that answers by itself, without TLS. Its queue of connections is as long as the kernel's own bound
// (net.core.somaxconn).
const plainNginxConf = `daemon off;
master_process off;
pid %[1]s/pid;
error_log stderr crit;
worker_rlimit_nofile 65536;
events { worker_connections 65536; }
http {
` + nginxQuiet + `	server {
		listen %[2]s backlog=4096;
		location / { return 200 "here\n"; }
	}
}
`

// staticNginxConf runs nginx as one process that serves the files of a directory without TLS. All other settings are nginx's defaults.
const staticNginxConf = `daemon off;
master_process off;
pid %[1]s/pid;
error_log stderr error;
events { worker_connections 1024; }
http {
` + nginxQuiet + `	server {
		listen %[2]s;
		listen %[3]s;
		root %[4]s;
	}
}
`

// StartStaticNginx starts a server that serves a file at an IPv4 and an IPv6 address. The server runs at the place where.
func StartStaticNginx(ctx context.Context, h *lab.Host, where Place, v4, v6 netip.AddrPort, name string, file []byte) (*Daemon, error) {
	return runNginx(ctx, h, &where, v4, func(dir string) (string, error) {
		root := filepath.Join(dir, "files")
		err := os.Mkdir(root, 0o700)
		if err == nil {
			err = os.WriteFile(filepath.Join(root, name), file, 0o600)
		}
		return fmt.Sprintf(staticNginxConf, dir, v4, v6, root), err
	})
}

// StartNginx starts a server at an address of a host, as a proxy in front of another server.
func StartNginx(ctx context.Context, h *lab.Host, at, behind netip.AddrPort) (*Daemon, error) {
	return runNginx(ctx, h, nil, at, func(dir string) (string, error) {
		return fmt.Sprintf(nginxConf, dir, at, behind), writeCertificate(dir, at.Addr())
	})
}

// StartPlainNginx starts a server at an address of a host, on a separate CPU. The server answers by itself. Its priority is higher than everything
// outside the experiment, and lower than receive threads.
func StartPlainNginx(ctx context.Context, h *lab.Host, cpu int, at netip.AddrPort) (*Daemon, error) {
	return runNginx(ctx, h, &Place{cpu, lab.Urgent}, at, func(dir string) (string, error) {
		return fmt.Sprintf(plainNginxConf, dir, at), nil
	})
}

// runNginx starts a server. The function configure makes the configuration for the server's directory.
func runNginx(ctx context.Context, h *lab.Host, where *Place, at netip.AddrPort, configure func(dir string) (string, error)) (*Daemon, error) {
	return StartDaemon(ctx, h, where, "nginx", func(dir string) ([]string, error) {
		file := filepath.Join(dir, "nginx.conf")
		text, err := configure(dir)
		if err == nil {
			err = os.WriteFile(file, []byte(text), 0o600)
		}
		return []string{"-c", file, "-p", dir, "-e", "stderr"}, err
	}, func() error {
		conn, err := h.Dial(ctx, "tcp", at)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// writeCertificate writes a self-signed certificate for an address, and its key.
func writeCertificate(dir string, addr netip.Addr) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "floodwall bench"}, IPAddresses: []net.IP{addr.AsSlice()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	write := func(name, kind string, content []byte) error {
		return os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
	}
	return errors.Join(write("cert.pem", "CERTIFICATE", cert), write("key.pem", "PRIVATE KEY", secret))
}
