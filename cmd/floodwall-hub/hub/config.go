// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Names of files in the state directory of a hub.
const (
	configFile     = "hub.json"
	caFile         = "ca.pem"
	certFile       = "cert.pem"
	keyFile        = "key.pem"
	adminFile      = "admin.nk"
	userFile       = "user.nk"       // the seed of the hub's key for an existing cluster
	ControllerFile = "controller.nk" // the seed of the controller key, which need not be on a hub
	storeDir       = "nats"
)

// The default ports.
const (
	ClientPort  = "4222" // for nodes
	ClusterPort = "6222" // for other hubs
)

// Peer is a hub of the fleet.
type Peer struct {
	Name    string `json:"name"`
	Nodes   string `json:"nodes"`             // HOST:PORT for nodes
	Cluster string `json:"cluster,omitempty"` // HOST:PORT for other hubs
}

// Config is the configuration of a hub: hub.json, and the files in its directory.
type Config struct {
	Name       string `json:"name"`
	Hubs       []Peer `json:"hubs"`
	Controller string `json:"controller"`      // the public controller key
	NATS       string `json:"nats,omitempty"`  // addresses of an existing cluster; then there is no embedded server
	Creds      string `json:"creds,omitempty"` // file with credentials for the existing cluster
	// DiskMB is the part of its disk that each hub may use, in MB. The limits of the fleet follow from this value, so it is the same on all hubs.
	DiskMB int `json:"disk_mb,omitempty"`

	dir string
	// Fast, for tests and measurements, skips waiting for the disk.
	Fast bool `json:"-"`
	// Plain, for measurements, opens no ports: all connections are within the process.
	Plain bool `json:"-"`
}

// Read reads the configuration in the state directory of a hub.
func Read(dir string) (*Config, error) {
	text, err := os.ReadFile(filepath.Join(dir, configFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, wording.Hinted(fmt.Sprintf("%s is not the state directory of a hub", dir), "`floodwall-hub init` makes one")
	}
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	c := &Config{dir: dir}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, wording.Hinted(fmt.Sprintf("%s cannot be read: %v", filepath.Join(dir, configFile), err), "restore the file from a backup")
	}
	if c.NATS == "" && c.self() == nil {
		return nil, wording.Hinted(fmt.Sprintf("%s: hub %q is not among its hubs", filepath.Join(dir, configFile), c.Name), "restore the file from a backup")
	}
	return c, nil
}

func (c *Config) self() *Peer {
	for i := range c.Hubs {
		if c.Hubs[i].Name == c.Name {
			return &c.Hubs[i]
		}
	}
	return nil
}

// Servers returns the addresses of all hubs, for clients.
func (c *Config) Servers() (list []string) {
	for _, h := range c.Hubs {
		list = append(list, "tls://"+h.Nodes)
	}
	return list
}

// admin returns the key with which a hub and its commands connect to the hub's own server.
func (c *Config) admin() (key nkeys.KeyPair, public string, err error) {
	if c.NATS != "" {
		return nil, "", nil
	}
	if key, err = readSeed(filepath.Join(c.dir, adminFile)); err != nil {
		return nil, "", err
	}
	public, err = key.PublicKey()
	return key, public, err
}

// user returns the option with which a hub and its commands connect to an existing cluster.
func (c *Config) user() (nats.Option, error) {
	if c.Creds != "" {
		return nats.UserCredentials(c.Creds), nil
	}
	key, err := readSeed(filepath.Join(c.dir, userFile))
	if err != nil {
		return nil, err
	}
	return keyOption(key), nil
}

// readSeed reads the seed of a key from a file or a pipe. Other users must not be able to read the file.
func readSeed(path string) (nkeys.KeyPair, error) {
	rule := safefile.Key(path)
	rule.Pipe = true
	text, err := rule.Read(path)
	var exposed *safefile.ExposedError
	switch {
	case errors.As(err, &exposed):
		return nil, wording.WithHint(err, exposed.Hint()+", and make a new key if somebody may have read or written it")
	case err != nil:
		return nil, fmt.Errorf("key: %w", err)
	}
	key, err := nkeys.ParseDecoratedNKey(text)
	if err != nil {
		return nil, fmt.Errorf("key: %s: %w", path, err)
	}
	return key, nil
}

// authority returns the certificate that signs the certificates of all hubs.
func (c *Config) authority() (*x509.CertPool, []byte, error) {
	text, err := os.ReadFile(filepath.Join(c.dir, caFile))
	if err != nil {
		return nil, nil, fmt.Errorf("certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, nil, fmt.Errorf("certificate: %s holds none", caFile)
	}
	return pool, text, nil
}

// tls returns the TLS configuration for nodes, and the one for other hubs.
func (c *Config) tls() (nodes, hubs *tls.Config, err error) {
	pool, _, err := c.authority()
	if err != nil {
		return nil, nil, err
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(c.dir, certFile), filepath.Join(c.dir, keyFile))
	if err != nil {
		return nil, nil, fmt.Errorf("certificate: %w", err)
	}
	nodes = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, RootCAs: pool}
	hubs = nodes.Clone()
	hubs.ClientCAs, hubs.ClientAuth = pool, tls.RequireAndVerifyClientCert
	return nodes, hubs, nil
}

// withPort adds a port to an address that has none.
func withPort(address, port string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(address, port)
}
