// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// versionSuffix is the suffix of the file that stores the last version that a key has signed. The version is stored because the hubs could hide it.
const versionSuffix = ".version"

// NewKey makes a key in a new file. It returns the public key.
func NewKey(file string) (public string, err error) {
	key, err := nkeys.CreateAccount() // ed25519; the type differs from that of users' keys and the controller's
	if err != nil {
		return "", fmt.Errorf("key: %w", err)
	}
	seed, err := key.Seed()
	if err != nil {
		return "", fmt.Errorf("key: %w", err)
	}
	err = safefile.Create(file, append(seed, '\n'), 0o600)
	if errors.Is(err, fs.ErrExist) {
		return "", wording.Hinted(file+" is there already", "name another file: a key that is lost cannot sign again")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", wording.Hinted("the directory of "+file+" is not there", "make it first, for its owner alone")
	}
	if err != nil {
		return "", fmt.Errorf("key: %w", err)
	}
	return key.PublicKey()
}

// ReadKey reads a key, and the last version that the key has signed. The function took records the next version.
func ReadKey(file string) (key nkeys.KeyPair, last uint64, took func(uint64) error, err error) {
	text, err := safefile.Key(file).Read(file)
	var exposed *safefile.ExposedError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, nil, wording.Hinted(file+" is not there", "name the file that `floodwall-hub fleet key FILE` made")
	case errors.As(err, &exposed):
		return nil, 0, nil, wording.WithHint(err, exposed.Hint()+", and make a new key if somebody may have read or written it")
	case err != nil:
		return nil, 0, nil, fmt.Errorf("key: %w", err)
	}
	key, err = nkeys.FromSeed(bytes.TrimSpace(text))
	if err == nil {
		var public string
		if public, err = key.PublicKey(); err == nil && !nkeys.IsValidPublicAccountKey(public) {
			err = errors.New("it is a key of another kind: use a file that `floodwall-hub fleet key` has made")
		}
	}
	if err != nil {
		return nil, 0, nil, wording.Hinted(fmt.Sprintf("%s has no key for policies: %v", file, err), "`floodwall-hub fleet key FILE` makes one; the controller's key is another")
	}
	kept := file + versionSuffix
	text, err = os.ReadFile(kept)
	if err == nil {
		last, err = strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 62)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil, fmt.Errorf("key: %w", err)
	}
	return key, last, func(v uint64) error { return note(kept, v) }, nil
}

// note writes a version atomically.
func note(file string, version uint64) error {
	if err := safefile.Replace(file, fmt.Appendf(nil, "%d\n", version), 0o600); err != nil {
		return fmt.Errorf("the version cannot be noted: %w", err)
	}
	return nil
}
