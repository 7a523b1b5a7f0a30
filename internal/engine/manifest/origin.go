// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"github.com/floodwall/floodwall/policy"
)

// Origin is the text from which a policy was applied. A command that edits the policy's file compares the file with it: the file may have edits that
// nobody has applied, and another edit must not put them into force.
type Origin struct {
	File   string `json:"file,omitempty"` // absolute path; "" for standard input
	SHA256 string `json:"sha256"`         // of the text, in hexadecimal digits
}

// OriginOf returns the origin of a text. file is the name of the policy, whose directory is this process's if the name is relative.
func OriginOf(file string, text []byte) *Origin {
	sum := sha256.Sum256(text)
	o := &Origin{SHA256: hex.EncodeToString(sum[:])}
	if filepath.Base(file) == policy.Stdin {
		return o
	}
	if path, err := filepath.Abs(file); err == nil {
		o.File = path
	}
	return o
}

// Is reports whether a text is the one from which the policy was applied. It is none of an unknown origin.
func (o *Origin) Is(text []byte) bool {
	return o != nil && OriginOf(policy.Stdin, text).SHA256 == o.SHA256
}
