// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// Invitation allows a host to join a fleet once. Anybody who has the text of the invitation can join instead of the host until the invitation
// expires.
type Invitation struct {
	Name   string   `json:"n"`
	Secret string   `json:"s"`
	CA     []byte   `json:"c"` // SHA-256 of the certificate that signs the hubs' certificates
	Hubs   []string `json:"h"` // addresses, as tls://HOST:PORT
}

// NewSecret makes the secret of an invitation.
func NewSecret() string { return rand.Text() }

// Token returns the invitation as one word.
func (i Invitation) Token() string {
	text, _ := json.Marshal(i) // cannot fail for strings and bytes
	return base64.RawURLEncoding.EncodeToString(text)
}

// maxToken is the greatest length of a token, in bytes.
const maxToken = 8 << 10

var errToken = errors.New("it is no invitation, or not whole: copy all of what `floodwall-hub invite` printed")

// ParseInvitation parses the token of an invitation.
func ParseInvitation(token string) (i Invitation, err error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(token) > maxToken || json.Unmarshal(text, &i) != nil {
		return i, errToken
	}
	if err := CheckName(i.Name); err != nil {
		return i, fmt.Errorf("invitation: %w", err)
	}
	if i.Secret == "" || len(i.CA) != 32 || len(i.Hubs) == 0 {
		return i, errToken
	}
	return i, nil
}
