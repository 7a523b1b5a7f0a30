// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"aead.dev/minisign"
)

// signatureEnding is the suffix that minisign appends to a file's name for its signature.
const signatureEnding = ".minisig"

// verify returns an error if a body does not have the checksum or the signature that the source requires.
func (f *Fetcher) verify(ctx context.Context, s Source, data []byte) error {
	if s.SHA256 != "" {
		sum := sha256.Sum256(data)
		if got := hex.EncodeToString(sum[:]); !strings.EqualFold(got, s.SHA256) {
			return &BodyError{fmt.Sprintf("its SHA-256 is %s, not the one of the policy", got), "if the list has changed on purpose, change sha256: of the set"}
		}
	}
	if s.Minisign == "" {
		return nil
	}
	var key minisign.PublicKey
	if err := key.UnmarshalText([]byte(s.Minisign)); err != nil {
		return fmt.Errorf("set %q: minisign: %w", s.Set, err)
	}
	signature, err := f.get(ctx, s.URL+signatureEnding, "", "", mostSigned)
	if err != nil {
		return fmt.Errorf("its signature: %w", err)
	}
	if !minisign.Verify(key, data, signature.data) {
		return &BodyError{"its signature is not that of the key of the policy", "if the key has changed, ask its owner and change minisign: of the set"}
	}
	return nil
}
