// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// File is the node's configuration. It contains the node's key, so only root may read the file on the disk.
type File struct {
	Name       string   `json:"name"`
	Seed       string   `json:"seed,omitempty"`  // the seed of the node's key
	Creds      string   `json:"creds,omitempty"` // instead of Seed: file with credentials for an existing cluster
	Hubs       []string `json:"hubs"`            // addresses of the hubs
	CA         string   `json:"ca,omitempty"`    // certificate of the hubs' CA, in PEM; "": the CAs of the system
	Controller string   `json:"controller,omitempty"`
	Policies   string   `json:"policies,omitempty"`  // the public key of policies; "": the node accepts no policies
	Set        string   `json:"set,omitempty"`       // the dynamic set for bans; "": the only set, or the set `bans`
	Reporters  int      `json:"reporters,omitempty"` // how many nodes must ban a prefix; 0 means one

	// State is the directory of the file, in which the agent stores its statements. If it is "", the agent stores nothing.
	State string `json:"-"`
}

// ErrNotJoined is the error when this host is in no fleet.
var ErrNotJoined error = wording.Hinted("this host is of no fleet", "`floodwall-hub invite NAME` on a hub prints the command by which it joins")

// Path returns the path of the file in a state directory.
func Path(state string) string { return filepath.Join(state, "fleet.json") }

// Read reads the file in a state directory. It returns ErrNotJoined when there is no file.
func Read(state string) (*File, error) {
	path := Path(state)
	text, err := safefile.Key(path).Read(path)
	var exposed *safefile.ExposedError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNotJoined
	case errors.As(err, &exposed):
		return nil, wording.Hinted(fmt.Sprintf("%v, and it holds the key of this node", exposed),
			exposed.Hint()+"; if somebody may have read or written it, `floodwall-hub revoke` and join anew")
	case err != nil:
		return nil, fmt.Errorf("fleet: %w", err)
	}
	f := File{State: state}
	err = json.Unmarshal(text, &f)
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return nil, wording.Hinted(fmt.Sprintf("%s is damaged: %v", path, err), "restore it, or `floodwall leave` and join anew")
	}
	return &f, nil
}

// check returns an error for an incomplete file.
func (f *File) check() error {
	if err := wire.CheckName(f.Name); err != nil {
		return err
	}
	if f.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(f.CA)) {
		return errors.New("ca holds no certificate")
	}
	if f.Controller != "" && !nkeys.IsValidPublicUserKey(f.Controller) {
		return errors.New("controller is no key")
	}
	if err := checkPolicyKey(f.Policies); err != nil {
		return err
	}
	if len(f.Hubs) == 0 {
		return errors.New("it names no hub")
	}
	if f.Creds != "" {
		return nil
	}
	_, err := nkeys.FromSeed([]byte(f.Seed))
	if err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	return nil
}

// write replaces the file in a state directory in one step.
func (f *File) write(path string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(text, '\n'), 0o600)
}

// writeFile replaces a file in one step.
func writeFile(path string, text []byte, mode fs.FileMode) error {
	if err := safefile.Replace(path, text, mode); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	return nil
}

// Leave removes the configuration. Bans of other nodes stay until their ends.
func Leave(state string) error {
	err := os.Remove(Path(state))
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotJoined
	}
	os.Remove(pendingPath(state))
	os.Remove(statusPath(state))
	os.Remove(ledgerPath(state))
	return err
}
