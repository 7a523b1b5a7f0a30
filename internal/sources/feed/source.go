// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Source has the parameters and the limits of a list.
type Source struct {
	Set      string        `json:"set"` // the name of the set in the policy
	URL      string        `json:"url"`
	Every    time.Duration `json:"every"`              // the interval between fetches
	Max      int           `json:"max,omitempty"`      // largest number of entries; 0 is MaxEntries
	Shrink   int           `json:"shrink"`             // percentage of the previous number of entries; a list with fewer is held
	Grow     int           `json:"grow"`               // percentage of the previous number of entries; a list with more is held; 0: no limit
	Format   Format        `json:"format,omitempty"`   // "": the format is detected
	SHA256   string        `json:"sha256,omitempty"`   // of the body, in hexadecimal digits; "": not checked
	Minisign string        `json:"minisign,omitempty"` // the public key for the signature, which is fetched from the URL with the suffix .minisig; "": not checked
}

// The defaults of a source. No list may be fetched more than once an hour. Spamhaus requires that, and other lists do not change more often.
const (
	DefaultEvery  = 12 * time.Hour
	LeastEvery    = time.Hour
	DefaultShrink = 50
	DefaultGrow   = 300
	MaxEntries    = 4_000_000
)

// Format is the form of a list.
type Format string

// The formats.
const (
	List   Format = "list"   // each line is an address, a prefix or a range, as in files of sets
	CSV    Format = "csv"    // the first field is an address or a prefix; if the second field is also an address, both are the ends of a range
	NDJSON Format = "ndjson" // each line is an object with cidr, prefix, network, range or ip
)

// Formats has all formats.
var Formats = []Format{List, CSV, NDJSON}

// entries returns the largest allowed number of entries.
func (s Source) entries() int {
	if s.Max > 0 {
		return min(s.Max, MaxEntries)
	}
	return MaxEntries
}

// Secure reports whether the list is fetched over TLS, so that an attacker on the network path cannot change it.
func (s Source) Secure() bool { return strings.HasPrefix(s.URL, "https:") }

// key returns the name of the source's directory. A source with another URL, or with another method of verification, is
// a different source with its own copies.
func (s Source) key() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", s.URL, s.Format, s.SHA256, s.Minisign))
	return s.Set + "-" + hex.EncodeToString(sum[:6])
}
