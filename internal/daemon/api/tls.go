// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/floodwall/floodwall/policy"
)

// tlsConfig returns a configuration that requires client certificates. It reads the files again when they change, because certificates are renewed
// every few weeks.
func tlsConfig(files policy.TLS) (*tls.Config, error) {
	r := &tlsFiles{files: files}
	if _, err := r.config(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		ClientAuth:         tls.RequireAndVerifyClientCert,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.config() },
	}, nil
}

// tlsFiles contains the files as they were last read.
type tlsFiles struct {
	files policy.TLS

	mu      sync.Mutex
	changed [3]time.Time
	read    *tls.Config
}

// config returns the configuration. It reads the files again if one has changed. While the files do not match, as in the middle of a renewal, it
// returns the previous configuration.
func (r *tlsFiles) config() (*tls.Config, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var now [3]time.Time
	for i, name := range []string{r.files.Cert, r.files.Key, r.files.ClientCA} {
		info, err := os.Stat(name)
		if err != nil {
			return r.orBefore(err)
		}
		now[i] = info.ModTime()
	}
	if r.read != nil && now == r.changed {
		return r.read, nil
	}
	config, err := readTLS(r.files)
	if err != nil {
		return r.orBefore(err)
	}
	r.changed, r.read = now, config
	return config, nil
}

func (r *tlsFiles) orBefore(err error) (*tls.Config, error) {
	if r.read != nil {
		return r.read, nil
	}
	return nil, fmt.Errorf("tls: %w", err)
}

func readTLS(files policy.TLS) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(files.ClientCA)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: there is no certificate in it", files.ClientCA)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		Certificates: []tls.Certificate{cert},
		ClientCAs:    authorities,
	}, nil
}
