package wire

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// Invitation is what a host needs to join a fleet once. Whoever has its text can join in the host's place until it ends.
type Invitation struct {
	Name   string   `json:"n"`
	Secret string   `json:"s"`
	CA     []byte   `json:"c"` // SHA-256 of the certificate that signs those of hubs
	Hubs   []string `json:"h"` // addresses, as tls://HOST:PORT
}

// NewSecret makes the secret of an invitation.
func NewSecret() string { return rand.Text() }

// Token is the invitation as one word.
func (i Invitation) Token() string {
	text, _ := json.Marshal(i) // of strings and bytes
	return base64.RawURLEncoding.EncodeToString(text)
}

// maxToken is how long the word of an invitation may be, in bytes.
const maxToken = 8 << 10

var errToken = errors.New("it is no invitation, or not whole: copy all of what `floodwall-hub invite` printed")

// ParseInvitation reads the word of an invitation.
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
