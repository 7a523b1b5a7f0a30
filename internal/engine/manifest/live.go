// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/internal/sources/geo"
)

// Live is a set whose content is replaced while the policy runs. It describes the present content.
type Live struct {
	Set     string         `json:"set"`
	Feed    *feed.Source   `json:"feed,omitempty"` // the source from which the set is fetched; nil for a database
	Geo     *Database      `json:"geo,omitempty"`  // the database from which the set is read; nil for a fetched list
	Sum     string         `json:"sum"`            // the checksum of the content
	Origin  string         `json:"origin"`         // identifies the copy or the database
	Entries int            `json:"entries"`
	Spared  []feed.Removed `json:"spared,omitempty"` // entries that were removed from the list because this host needs them
	More    int            `json:"more_spared,omitempty"`
	Since   time.Time      `json:"since"` // when this content came into force
}

// Database is a file that has the addresses of countries or autonomous systems, and the wanted ones.
type Database struct {
	geo.Wanted
	File string `json:"file"`
}

// LiveOf finds a live set by its name. It returns nil when there is none.
func (m *Manifest) LiveOf(set string) *Live {
	for i := range m.Live {
		if m.Live[i].Set == set {
			return &m.Live[i]
		}
	}
	return nil
}

// Screened returns the entries that were removed from the list because this host needs them.
func (l *Live) Screened() *feed.Screened { return &feed.Screened{Removed: l.Spared, More: l.More} }

// SumOf returns a checksum of the content of a set.
func SumOf(s *addrs.Set) string {
	text, err := s.MarshalText()
	if err != nil {
		return "" // MarshalText returns no error
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// LimitKeys are the hash keys for prefixes in the tables of a program's limits.
type LimitKeys struct {
	Sums [8]uint32 `json:"sums"`
	Mix  [2]uint64 `json:"mix"`
}

// NeverSet returns the prefixes that the policy never bans, as far as the manifest has them. It returns nil when there are none.
func (m *Manifest) NeverSet() *addrs.Set {
	var b addrs.Builder
	for _, p := range m.Never {
		if b.Add(p) != nil {
			continue // cannot happen: Never has only valid prefixes
		}
	}
	if b.Entries() == 0 {
		return nil
	}
	return b.Set()
}
