package feed

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Source is a list and what is allowed of it.
type Source struct {
	Set      string        `json:"set"` // the policy's name for it
	URL      string        `json:"url"`
	Every    time.Duration `json:"every"`              // how often it is fetched
	Max      int           `json:"max,omitempty"`      // entries; 0 is MaxEntries
	Shrink   int           `json:"shrink"`             // percent of the entries before, below which a list is held
	Grow     int           `json:"grow"`               // percent of them, above which it is held; 0: it never is
	Format   Format        `json:"format,omitempty"`   // "" is detected
	SHA256   string        `json:"sha256,omitempty"`   // of the body, in hexadecimal digits
	Minisign string        `json:"minisign,omitempty"` // the public key of the signature, which is fetched from the URL with .minisig behind it
}

// The defaults of a source. More than hourly no list may be fetched: Spamhaus asks for that, and others do not change oftener.
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
	List   Format = "list"   // a line is an address, a prefix or a range, as in files of sets
	CSV    Format = "csv"    // the first field is an address or prefix; where the second is an address too, they are the ends of a range
	NDJSON Format = "ndjson" // a line is an object with cidr, prefix, network, range or ip
)

// Formats are all formats.
var Formats = []Format{List, CSV, NDJSON}

// entries is how many entries the list may have.
func (s Source) entries() int {
	if s.Max > 0 {
		return min(s.Max, MaxEntries)
	}
	return MaxEntries
}

// Secure reports whether the list comes over TLS, so that nobody on the way can change it.
func (s Source) Secure() bool { return strings.HasPrefix(s.URL, "https:") }

// key names the source's directory. Another URL or another way to verify is another source: what was fetched for one
// says nothing of the other.
func (s Source) key() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", s.URL, s.Format, s.SHA256, s.Minisign))
	return s.Set + "-" + hex.EncodeToString(sum[:6])
}
