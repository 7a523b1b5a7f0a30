// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// certLife is how long certificates of hubs are valid.
const certLife = 10 * 365 * 24 * time.Hour

// NewPeer parses a hub's NAME=HOST[:PORT]. The port is the port for nodes.
func NewPeer(name, address string) (Peer, error) {
	p := Peer{Name: name, Nodes: withPort(address, ClientPort)}
	if err := wire.CheckName(name); err != nil {
		return p, err
	}
	host, _, err := net.SplitHostPort(p.Nodes)
	if err != nil || host == "" {
		return p, fmt.Errorf("address %q of hub %s: want HOST or HOST:PORT", address, name)
	}
	p.Cluster = net.JoinHostPort(host, ClusterPort)
	return p, nil
}

// Init makes the state of a new fleet in a directory. A single hub has its state in dir itself; otherwise each hub has a subdirectory with its name.
// The controller's key is in dir itself. Init returns the directories. diskMB is Config.DiskMB.
func Init(dir string, peers []Peer, diskMB int) (dirs []string, err error) {
	if _, err := os.Stat(filepath.Join(dir, ControllerFile)); err == nil {
		return nil, wording.Hinted(dir+" has the keys of a fleet already", "name another directory with --dir; a fleet whose keys are lost begins anew")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	a, err := newAuthority()
	if err != nil {
		return nil, err
	}
	_, adminSeed, err := newKey()
	if err != nil {
		return nil, err
	}
	controller, controllerSeed, err := newKey()
	if err != nil {
		return nil, err
	}
	for _, p := range peers {
		to := dir
		if len(peers) > 1 {
			to = filepath.Join(dir, p.Name)
		}
		if err := a.writeHub(to, p, Config{Name: p.Name, Hubs: peers, Controller: controller, DiskMB: diskMB}, adminSeed); err != nil {
			return nil, err
		}
		dirs = append(dirs, to)
	}
	return dirs, writeNew(filepath.Join(dir, ControllerFile), controllerSeed)
}

// newKey makes a key pair. It returns the public key, and the content of the file with the seed.
func newKey() (public string, seed []byte, err error) {
	key, err := nkeys.CreateUser()
	if err == nil {
		public, err = key.PublicKey()
	}
	if err == nil {
		seed, err = key.Seed()
	}
	return public, append(seed, '\n'), err
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	text []byte // PEM
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	template := certificate("floodwall fleet")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, err
}

// certificate is the common part of all certificates.
func certificate(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // crypto/rand does not fail
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(certLife), // a node's clock may never have been set
	}
}

// writeHub writes the state directory of a hub.
func (a *authority) writeHub(dir string, p Peer, c Config, adminSeed []byte) error {
	host, _, err := net.SplitHostPort(p.Nodes)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	template := certificate(p.Name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	return errors.Join(
		writeNew(filepath.Join(dir, caFile), a.text),
		writeNew(filepath.Join(dir, certFile), append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), a.text...)),
		writeNew(filepath.Join(dir, keyFile), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
		writeNew(filepath.Join(dir, adminFile), adminSeed),
		writeNew(filepath.Join(dir, configFile), append(text, '\n')),
	)
}

// writeNew writes a new file that only its owner can read. It returns an error if the file exists.
func writeNew(path string, text []byte) error {
	if err := safefile.Create(path, text, 0o600); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	return nil
}

// Made is the state of a new hub that uses an existing cluster.
type Made struct {
	User       string // the hub's user, in the format of the cluster's configuration
	Controller string // the public key of the controller
}

// InitClient makes the state of a hub that uses an existing cluster. Without credentials it makes a key for the hub.
func InitClient(dir, servers, creds string) (m Made, err error) {
	if _, err := os.Stat(filepath.Join(dir, ControllerFile)); err == nil {
		return m, wording.Hinted(dir+" has the keys of a fleet already", "name another directory with --dir")
	}
	controller, seed, err := newKey()
	if err != nil {
		return m, err
	}
	m.Controller = controller
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return m, fmt.Errorf("hub: %w", err)
	}
	user := ""
	if creds != "" {
		if creds, err = filepath.Abs(creds); err != nil {
			return m, fmt.Errorf("credentials: %w", err)
		}
	} else {
		var seed []byte
		if user, seed, err = newKey(); err == nil {
			err = writeNew(filepath.Join(dir, userFile), seed)
		}
		if err != nil {
			return m, err
		}
	}
	m.User = wire.HubPermissions().Text(user)
	text, err := json.MarshalIndent(Config{Name: "hub", NATS: servers, Creds: creds, Controller: controller, DiskMB: DefaultDisk}, "", "  ")
	if err != nil {
		return m, err
	}
	return m, errors.Join(writeNew(filepath.Join(dir, configFile), append(text, '\n')), writeNew(filepath.Join(dir, ControllerFile), seed))
}
