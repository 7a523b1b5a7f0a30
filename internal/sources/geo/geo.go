// SPDX-License-Identifier: Apache-2.0

package geo

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/oschwald/maxminddb-golang/v2"

	"github.com/floodwall/floodwall/internal/model/addrs"
)

// Wanted selects the addresses that a set takes from a database.
type Wanted struct {
	Countries []string `json:"countries,omitempty"` // codes of ISO 3166-1, in upper case
	ASNs      []uint32 `json:"asns,omitempty"`
}

// record has the data of a network in a database. MaxMind's databases have the country in country.iso_code. If the country is unknown, they have the
// country of registration. Other databases have country_code, or country as a text. The number of the AS is in autonomous_system_number or asn, as a
// number or as a text such as AS64500.
type record struct {
	Country     any    `maxminddb:"country"`
	Registered  iso    `maxminddb:"registered_country"`
	CountryCode string `maxminddb:"country_code"`
	Number      uint32 `maxminddb:"autonomous_system_number"`
	ASN         any    `maxminddb:"asn"`
}

type iso struct {
	Code string `maxminddb:"iso_code"`
}

// A DBError is the reason why a database cannot be used.
type DBError struct{ File, Why, Remedy string }

func (e *DBError) Error() string { return e.File + ": " + e.Why }

// Hint returns the remedy.
func (e *DBError) Hint() string { return e.Remedy }

// mostBytes is the largest database that is read, in bytes. MaxMind's largest databases have less than half a gigabyte.
const mostBytes = 2 << 30

// Read returns the wanted addresses of a database, and the number of their networks. It verifies the database first. If the database is broken, or is
// made to exhaust its reader, Read returns an error. It also returns an error if the database has no network of a wanted country or AS.
func Read(file string, w Wanted) (*addrs.Set, int, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() || info.Size() > mostBytes {
		return nil, 0, &DBError{file, "it is no regular file of 2 GiB at most", ""}
	}
	content, err := os.ReadFile(file) // reads the file and does not map it, because the file may change meanwhile
	if err != nil {
		return nil, 0, err
	}
	db, err := maxminddb.OpenBytes(content)
	if err == nil {
		defer db.Close()
		err = db.Verify()
	}
	if err == nil {
		err = sized(db, content)
	}
	if err != nil {
		return nil, 0, &DBError{file, fmt.Sprintf("it is no whole database in MaxMind's format (mmdb): %v", err), "download it again"}
	}
	r := reader{wanted: w, found: map[string]bool{}}
	for network := range db.Networks(maxminddb.SkipEmptyValues()) {
		if err := r.network(network); err != nil {
			return nil, 0, &DBError{file, err.Error(), ""}
		}
	}
	if missing := r.missing(); missing != nil {
		return nil, 0, &DBError{file, fmt.Sprintf("it has no network of %s", strings.Join(missing, ", ")),
			"is it a database of " + r.kind() + "?"}
	}
	return r.builder.Set(), r.networks, nil
}

// reader collects networks.
type reader struct {
	wanted   Wanted
	found    map[string]bool
	builder  addrs.Builder
	networks int
}

func (r *reader) network(n maxminddb.Result) error {
	var of record
	if err := n.Decode(&of); err != nil {
		return err
	}
	name, ok := r.wants(of)
	if !ok {
		return nil
	}
	prefix := n.Prefix()
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	r.found[name] = true
	r.networks++
	return r.builder.Add(prefix)
}

// wants reports whether a record has a wanted country or AS. name is the country or the AS.
func (r *reader) wants(of record) (name string, ok bool) {
	if len(r.wanted.Countries) > 0 {
		code := of.country()
		return code, slices.Contains(r.wanted.Countries, code)
	}
	number := of.asn()
	return fmt.Sprintf("AS%d", number), slices.Contains(r.wanted.ASNs, number)
}

func (of *record) country() string {
	code := of.CountryCode
	switch c := of.Country.(type) {
	case string:
		code = c
	case map[string]any:
		if text, ok := c["iso_code"].(string); ok {
			code = text
		}
	}
	if code == "" {
		code = of.Registered.Code
	}
	return strings.ToUpper(code)
}

func (of *record) asn() uint32 {
	if of.Number != 0 {
		return of.Number
	}
	var number uint32
	text := strings.TrimPrefix(strings.ToUpper(fmt.Sprint(of.ASN)), "AS")
	if _, err := fmt.Sscanf(text, "%d", &number); err != nil {
		return 0
	}
	return number
}

// missing returns the wanted countries and ASNs that were not found.
func (r *reader) missing() (list []string) {
	for _, code := range r.wanted.Countries {
		if !r.found[code] {
			list = append(list, code)
		}
	}
	for _, number := range r.wanted.ASNs {
		if name := fmt.Sprintf("AS%d", number); !r.found[name] {
			list = append(list, name)
		}
	}
	return list
}

func (r *reader) kind() string {
	if len(r.wanted.Countries) > 0 {
		return "countries"
	}
	return "autonomous systems"
}
