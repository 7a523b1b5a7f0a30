// SPDX-License-Identifier: Apache-2.0

package geo

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/oschwald/maxminddb-golang/v2"
)

// mostFound is the largest database, in bytes, that is kept in memory for lookups.
const mostFound = 256 << 20

// Finder keeps databases in memory. It keeps each one until its file changes, or until it is no longer used.
type Finder struct {
	mu   sync.Mutex
	open map[string]*opened
}

type opened struct {
	changed time.Time
	size    int64
	db      *maxminddb.Reader // nil if the file cannot be used
}

// Databases are open databases for lookups; nil: none.
type Databases []*maxminddb.Reader

// Open returns the databases in the files. It omits files that cannot be used. The code that makes sets from such a file reports the reason.
func (f *Finder) Open(files []string) (list Databases) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := map[string]*opened{}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || now[file] != nil {
			continue
		}
		o := f.open[file]
		if o == nil || !o.changed.Equal(info.ModTime()) || o.size != info.Size() {
			o = &opened{changed: info.ModTime(), size: info.Size(), db: read(file, info)}
		}
		now[file] = o
		if o.db != nil {
			list = append(list, o.db)
		}
	}
	f.open = now
	return list
}

// read reads a whole database into memory, because its file may change. It returns nil if the file cannot be used.
func read(file string, info os.FileInfo) *maxminddb.Reader {
	if !info.Mode().IsRegular() || info.Size() > mostFound {
		return nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	db, err := maxminddb.OpenBytes(content)
	if err != nil || db.Verify() != nil {
		return nil
	}
	return db
}

// Find returns the country of an address as a code of ISO 3166-1, and its autonomous system in the form AS64500; "" for unknown values.
func (d Databases) Find(a netip.Addr) (country, asn string) {
	for _, db := range d {
		var of record
		if err := db.Lookup(a).Decode(&of); err != nil {
			continue
		}
		if code := of.country(); country == "" {
			country = code
		}
		if number := of.asn(); asn == "" && number != 0 {
			asn = fmt.Sprintf("AS%d", number)
		}
	}
	return country, asn
}
