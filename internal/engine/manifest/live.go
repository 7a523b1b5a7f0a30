package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/internal/sources/geo"
)

// Live is a set whose content is exchanged while the policy runs, and which content is in force.
type Live struct {
	Set     string         `json:"set"`
	Feed    *feed.Source   `json:"feed,omitempty"` // where it is fetched from
	Geo     *Database      `json:"geo,omitempty"`  // or what it is read from
	Sum     string         `json:"sum"`            // of the content
	Origin  string         `json:"origin"`         // tells the copy or the database from others
	Entries int            `json:"entries"`
	Spared  []feed.Removed `json:"spared,omitempty"` // what was taken out of the list for this host
	More    int            `json:"more_spared,omitempty"`
	Since   time.Time      `json:"since"` // this content has been in force
}

// Database is a file of which a set has the addresses of countries or autonomous systems.
type Database struct {
	geo.Wanted
	File string `json:"file"`
}

// LiveOf finds a set whose content is exchanged, nil when there is none of that name.
func (m *Manifest) LiveOf(set string) *Live {
	for i := range m.Live {
		if m.Live[i].Set == set {
			return &m.Live[i]
		}
	}
	return nil
}

// Screened is what was taken out of the list for this host.
func (l *Live) Screened() *feed.Screened { return &feed.Screened{Removed: l.Spared, More: l.More} }

// SumOf tells the content of a set from any other.
func SumOf(s *addrs.Set) string {
	text, err := s.MarshalText()
	if err != nil {
		return "" // it returns no error
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// LimitKeys are the keys by which a program finds prefixes in its limits' tables.
type LimitKeys struct {
	Sums [8]uint32 `json:"sums"`
	Mix  [2]uint64 `json:"mix"`
}

// NeverSet is who the policy never bans, as far as the manifest knows, nil when it is nobody.
func (m *Manifest) NeverSet() *addrs.Set {
	var b addrs.Builder
	for _, p := range m.Never {
		if b.Add(p) != nil {
			continue // it has prefixes only
		}
	}
	if b.Entries() == 0 {
		return nil
	}
	return b.Set()
}
