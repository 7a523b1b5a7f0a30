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

// tlsConfig asks clients for certificates. Its files are read again when they change: certificates are renewed every few weeks.
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

// tlsFiles are the files, as they were read last.
type tlsFiles struct {
	files policy.TLS

	mu      sync.Mutex
	changed [3]time.Time
	read    *tls.Config
}

// config reads the files if one has changed. While they do not fit together, as in the middle of a renewal, the ones before hold.
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
