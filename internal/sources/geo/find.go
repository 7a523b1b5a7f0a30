package geo

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/oschwald/maxminddb-golang/v2"
)

// mostFound is the largest database that is kept in memory to find addresses in.
const mostFound = 256 << 20

// Finder keeps databases in memory, each until its file changes or it is not asked for any more.
type Finder struct {
	mu   sync.Mutex
	open map[string]*opened
}

type opened struct {
	changed time.Time
	size    int64
	db      *maxminddb.Reader // nil when the file cannot be used
}

// Databases are those that addresses are found in, nil for none.
type Databases []*maxminddb.Reader

// Open has these files ready. One that cannot be used is left out: whoever makes sets of it says why.
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

// read reads a database as a whole, as its file may change. It is nil when that cannot be used.
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

// Find is the country of an address, a code of ISO 3166-1, and its autonomous system, as AS64500; "" for what no database says.
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
