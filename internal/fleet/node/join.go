// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// joinWait is how long a hub may take to answer.
const joinWait = 10 * time.Second

// pendingPath returns the path of the file with the key of a node that is joining. If the answer of the hub is lost, the node tries again with the
// same key, because the invitation is then valid for no other key.
func pendingPath(state string) string { return filepath.Join(state, "fleet.joining") }

// Join makes a host join a fleet with an invitation. It uses only Set, Reporters and Policies of f. If a revoked node joins the same fleet again, it
// keeps its earlier values for fields that are empty in f.
func Join(ctx context.Context, state, token string, f File) (*File, error) {
	if err := checkPolicyKey(f.Policies); err != nil {
		return nil, err // this is checked before the invitation is used up
	}
	i, err := wire.ParseInvitation(token)
	if err != nil {
		return nil, err
	}
	was, err := memberOf(state)
	if err != nil {
		return nil, err
	}
	if was != nil {
		if was.Name != i.Name || !was.trusts(i.CA) {
			return nil, &JoinedError{was.Name}
		}
		f.Set, f.Reporters, f.Policies = cmp.Or(f.Set, was.Set), cmp.Or(f.Reporters, was.Reporters), cmp.Or(f.Policies, was.Policies)
	}
	key, seed, err := pendingKey(state)
	if err != nil {
		return nil, err
	}
	a, err := ask(ctx, i, key)
	if err != nil {
		return nil, err
	}
	f.Name, f.Seed, f.Hubs, f.CA, f.Controller = i.Name, string(seed), a.Hubs, a.CA, a.Controller
	return &f, f.keep(state)
}

// Use makes a host join a fleet on an existing cluster, with credentials or with a new key. It returns the user that must be added to the cluster.
func Use(state string, f File) (user string, err error) {
	if was, err := memberOf(state); err != nil {
		return "", err
	} else if was != nil {
		return "", &JoinedError{was.Name}
	}
	public := ""
	if f.Creds != "" {
		if f.Creds, err = filepath.Abs(f.Creds); err != nil {
			return "", fmt.Errorf("credentials: %w", err)
		}
	} else if f.Seed == "" {
		var seed []byte
		if public, seed, err = pendingKey(state); err != nil {
			return "", err
		}
		f.Seed = string(seed)
	}
	return wire.NodePermissions(f.Name).Text(public), f.keep(state)
}

func (f *File) keep(state string) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if err := os.MkdirAll(state, 0o755); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	os.Remove(ledgerPath(state)) // the ledger of an earlier fleet, if somebody removed the file of that fleet by hand
	if err := f.write(Path(state)); err != nil {
		return err
	}
	os.Remove(pendingPath(state))
	return nil
}

// memberOf returns the configuration of a host that has joined a fleet, or nil for another host.
func memberOf(state string) (*File, error) {
	f, err := Read(state)
	if errors.Is(err, ErrNotJoined) {
		return nil, nil
	}
	return f, err
}

// JoinedError is the error when a host is already in a fleet.
type JoinedError struct{ Name string }

func (e *JoinedError) Error() string {
	return fmt.Sprintf("this host is node %s of a fleet already", e.Name)
}

// trusts reports whether the certificates of a node's hubs are signed by the certificate with this SHA-256.
func (f *File) trusts(sum []byte) bool {
	block, _ := pem.Decode([]byte(f.CA))
	if block == nil {
		return false
	}
	is := sha256.Sum256(block.Bytes)
	return bytes.Equal(is[:], sum)
}

// pendingKey returns the key with which a host is joining. It makes the key if necessary.
func pendingKey(state string) (public string, seed []byte, err error) {
	path := pendingPath(state)
	seed, err = os.ReadFile(path)
	key, parseErr := nkeys.FromSeed(bytes.TrimSpace(seed))
	if err != nil || parseErr != nil {
		if key, err = nkeys.CreateUser(); err != nil {
			return "", nil, fmt.Errorf("key: %w", err)
		}
		if seed, err = key.Seed(); err != nil {
			return "", nil, fmt.Errorf("key: %w", err)
		}
		if err := os.MkdirAll(state, 0o755); err != nil {
			return "", nil, fmt.Errorf("state directory: %w", err)
		}
		if err := writeFile(path, seed, 0o600); err != nil {
			return "", nil, err
		}
	}
	public, err = key.PublicKey()
	return public, bytes.TrimSpace(seed), err
}

// answer is the answer of a hub.
type answer struct {
	Error      string   `json:"error"`
	Hubs       []string `json:"hubs"`
	CA         string   `json:"ca"`
	Controller string   `json:"controller"`
}

// ask sends a key to a hub. It checks that the hub has the certificate that the invitation names.
func ask(ctx context.Context, i wire.Invitation, key string) (a answer, err error) {
	conn, err := nats.Connect(strings.Join(i.Hubs, ","), nats.UserInfo("join."+i.Name, i.Secret), nats.Secure(pinned(i.CA)),
		nats.CustomInboxPrefix(wire.Inbox("join_"+i.Name)), nats.Timeout(joinWait))
	if errors.Is(err, nats.ErrAuthorization) {
		return a, wording.Hinted("the hub does not know this invitation", "it has ended, or was used: `floodwall-hub invite` makes a new one")
	}
	if err != nil {
		return a, wording.Hinted(fmt.Sprintf("no hub can be reached at %s: %v", strings.Join(i.Hubs, ", "), err), "see whether a hub runs there, and whether a firewall is between")
	}
	defer conn.Close()
	text, err := json.Marshal(map[string]string{"key": key, "secret": i.Secret})
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinWait)
	defer cancel()
	m, err := conn.RequestWithContext(ctx, wire.Join+"."+i.Name, text)
	if err != nil {
		return a, wording.Hinted(fmt.Sprintf("the hub does not answer: %v", err), "run the same command again")
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return a, fmt.Errorf("answer of the hub: %w", err)
	}
	if a.Error != "" {
		return a, wording.Hinted("the hub refuses: "+a.Error, "`floodwall-hub invite` makes a new invitation")
	}
	return a, nil
}

// pinned returns a configuration that accepts a server whose certificate is signed by the certificate with this SHA-256. Only hubs have such
// certificates, so the server's name is not checked.
func pinned(sum []byte) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
		var certs []*x509.Certificate
		pool := x509.NewCertPool()
		for _, der := range raw {
			c, err := x509.ParseCertificate(der)
			if err != nil {
				return err
			}
			certs = append(certs, c)
			if is := sha256.Sum256(der); bytes.Equal(is[:], sum) {
				pool.AddCert(c)
			}
		}
		if len(certs) == 0 {
			return errors.New("the hub has no certificate")
		}
		if _, err := certs[0].Verify(x509.VerifyOptions{Roots: pool}); err != nil {
			return errors.New("this is not the hub of the invitation: its certificate is of another fleet")
		}
		return nil
	}}
}
