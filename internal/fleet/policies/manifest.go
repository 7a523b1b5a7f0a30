// SPDX-License-Identifier: Apache-2.0

// This file defines a fleet's policy with its files, signed by a key that no hub has. In: a directory, or bytes from a hub. Out: a manifest that the
// key's holder has signed, and files that match the manifest.
//
// Read manifest.go first: it is the signed part. dir.go reads a directory for signing, and writes received files. check.go says which files a
// bundle's policy may name.

package policies

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Policy is the file name of the policy in a bundle.
const Policy = "policy.yaml"

// The limits of a bundle.
const (
	MaxFiles  = 64
	MaxFile   = 16 << 20 // bytes of one file
	MaxBundle = 32 << 20 // bytes of all files
	MaxOrder  = 64 << 10 // bytes of a signed manifest
	MaxNote   = 200      // bytes
)

// The limits of Manifest.Confirm.
const (
	ShortestTrial = 10 * time.Second
	LongestTrial  = 10 * time.Minute
)

// Stage is the set of nodes that a manifest is for.
type Stage string

// The stages of a version, in their order.
const (
	Canary Stage = "canary" // the nodes of Manifest.Canary
	All    Stage = "all"    // every node
)

// Manifest lists the files of a version, and names the nodes that must apply the version.
type Manifest struct {
	Version uint64    `json:"version"` // of the fleet's policies: it only grows
	Stage   Stage     `json:"stage"`
	Canary  []string  `json:"canary,omitempty"` // names of nodes
	Confirm int       `json:"confirm"`          // seconds after applying the version in which a node must reach a hub
	Made    time.Time `json:"made"`
	Note    string    `json:"note,omitempty"`
	Files   []File    `json:"files"` // sorted by name
}

// File is a file of a bundle.
type File struct {
	Name string `json:"name"` // path from the top of the bundle
	Size int64  `json:"size"` // bytes
	Sum  string `json:"sha256"`
}

// Sum is the SHA-256 of bytes, in the manifest's format.
func Sum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Content identifies the files of a version.
func (m *Manifest) Content() string {
	text, _ := json.Marshal(m.Files) // cannot fail for strings and numbers
	return Sum(text)
}

// Trial returns Confirm as a duration.
func (m *Manifest) Trial() time.Duration { return time.Duration(m.Confirm) * time.Second }

// For reports whether a node must apply the version.
func (m *Manifest) For(node string) bool { return m.Stage == All || slices.Contains(m.Canary, node) }

// name is a path of at most four names, none of which begins with a dot: so it cannot leave the directory.
var name = wording.Regexp(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}){0,3}$`)

// check returns an error for an invalid manifest.
func (m *Manifest) check() error {
	switch {
	case m.Version == 0:
		return errors.New("it has no version")
	case m.Stage != All && m.Stage != Canary:
		return fmt.Errorf("stage %q, want %s or %s", m.Stage, Canary, All)
	case m.Stage == Canary && len(m.Canary) == 0:
		return errors.New("it names no canary")
	case m.Confirm < int(ShortestTrial/time.Second) || m.Confirm > int(LongestTrial/time.Second):
		return fmt.Errorf("a trial of %d s, want %v to %v", m.Confirm, ShortestTrial, LongestTrial)
	case len(m.Note) > MaxNote:
		return fmt.Errorf("the note has %d bytes, at most %d are taken", len(m.Note), MaxNote)
	case len(m.Files) > MaxFiles:
		return fmt.Errorf("%d files, at most %d are taken", len(m.Files), MaxFiles)
	}
	all := int64(0)
	for i, f := range m.Files {
		sum, err := hex.DecodeString(f.Sum)
		switch {
		case !name().MatchString(f.Name):
			return fmt.Errorf("file %q: want letters, digits, '.', '_' and '-', in at most 3 directories, none of which begins with '.'", f.Name)
		case f.Size < 0 || f.Size > MaxFile:
			return fmt.Errorf("file %s: %d bytes, at most %d are taken", f.Name, f.Size, MaxFile)
		case err != nil || len(sum) != sha256.Size || f.Sum != strings.ToLower(f.Sum):
			return fmt.Errorf("file %s: %q is no SHA-256", f.Name, f.Sum)
		case i > 0 && f.Name <= m.Files[i-1].Name:
			return fmt.Errorf("file %s: it is there twice, or the files are not in their order", f.Name)
		case i > 0 && strings.HasPrefix(f.Name, m.Files[i-1].Name+"/"):
			return fmt.Errorf("file %s: %s is a file too", f.Name, m.Files[i-1].Name)
		}
		all += f.Size
	}
	if all > MaxBundle {
		return fmt.Errorf("%d bytes in all files, at most %d are taken", all, MaxBundle)
	}
	if !slices.ContainsFunc(m.Files, func(f File) bool { return f.Name == Policy }) {
		return fmt.Errorf("no %s", Policy)
	}
	return nil
}

// begin is prepended to the signed text, so that the signature is valid for no other purpose.
const begin = "floodwall fleet policy 1\n"

// sigSize is the size of an ed25519 signature, in bytes.
const sigSize = 64

// Sign makes the order for a manifest: the signature (RFC 8032), followed by the manifest as JSON.
func Sign(m *Manifest, key nkeys.KeyPair) ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	sig, err := key.Sign(append([]byte(begin), text...))
	if err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	if len(text)+len(sig) > MaxOrder {
		return nil, fmt.Errorf("bundle: the manifest has %d bytes, at most %d are taken", len(text)+len(sig), MaxOrder)
	}
	return append(sig, text...), nil
}

// ErrNotSigned is the error when an order is not signed by the key's holder.
var ErrNotSigned = errors.New("the policy is not signed by the key that this fleet trusts")

// Open parses an order if the order has a valid signature of a public key. It parses nothing before it has verified the signature.
func Open(order []byte, public string) (*Manifest, error) {
	if !nkeys.IsValidPublicAccountKey(public) {
		return nil, errors.New("the key for policies is no public key")
	}
	key, err := nkeys.FromPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("key for policies: %w", err)
	}
	if err := sized(order); err != nil {
		return nil, err
	}
	if key.Verify(append([]byte(begin), order[sigSize:]...), order[:sigSize]) != nil {
		return nil, ErrNotSigned
	}
	return parse(order[sigSize:])
}

func sized(order []byte) error {
	if len(order) <= sigSize || len(order) > MaxOrder {
		return fmt.Errorf("an order of %d bytes, want %d to %d", len(order), sigSize+1, MaxOrder)
	}
	return nil
}

// Whole returns an error for an order with an invalid format. It verifies no signature: hubs have no key.
func Whole(order []byte) error {
	if err := sized(order); err != nil {
		return err
	}
	_, err := parse(order[sigSize:])
	return err
}

// parse parses a manifest. It refuses a manifest with an unknown field, because the field may be important.
func parse(text []byte) (*Manifest, error) {
	m := &Manifest{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if d.More() {
		return nil, errors.New("manifest: more data follows its end")
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}

// Fingerprint returns a short form of a public key for people to compare: the first 80 bits of the key's SHA-256.
func Fingerprint(public string) string {
	sum, parts := Sum([]byte(public)), []string{}
	for i := 0; i < 20; i += 4 {
		parts = append(parts, sum[i:i+4])
	}
	return strings.Join(parts, " ")
}
