// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Feed has the parameters of a set whose list is fetched over HTTP.
type Feed struct {
	URL      string
	Every    time.Duration // how often it is fetched
	Shrink   int           // percentage of the previous number of entries; a new list with fewer is held until an operator accepts it
	Grow     int           // percentage of the previous number of entries; a new list with more is held
	Format   string        // "": detected from the content
	SHA256   string        // of the list, in hexadecimal digits; "": the content is not checked
	Minisign string        // the public key that verifies the signature of the list; "": no signature is needed
}

// Geo selects the addresses of a set from a database in MaxMind's format.
type Geo struct {
	Countries []string // codes of ISO 3166-1, in upper case
	ASNs      []uint32
	DB        string // the database's file as written in the policy, or a copy that replaces it
	Written   string // the database's file as written in the policy
}

// The bounds of the times of Feed.
const (
	feedLeast = time.Hour // Spamhaus allows one fetch an hour, and other lists do not change more often
	feedMost  = 30 * 24 * time.Hour
)

// feedFormats are the forms of lists.
var feedFormats = words[string]{{"list", "list"}, {"csv", "csv"}, {"ndjson", "ndjson"}}

// feedKeys are the keys that only a set with url has.
var feedKeys = []string{"every", "shrink", "grow", "format", "sha256", "minisign"}

// feedURL parses the URL of a list.
func feedURL(text string) (string, *flaw) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", want("an address that begins with https:// or http://", text)
	}
	if u.User != nil {
		f := &flaw{msg: "must not have a password in it, as the policy is read by many"}
		return "", f.hintf("fetch the list with another tool, and name its copy by file")
	}
	return text, nil
}

// feedPeriod parses the interval between two fetches of a list.
func feedPeriod(text string) (time.Duration, *flaw) {
	d, f := duration(text)
	switch {
	case f != nil:
		return 0, f
	case d < feedLeast:
		return 0, want("1h or longer", text).hintf("those who publish lists ask not to be asked oftener; write 1h")
	case d > feedMost:
		return 0, want("30d or shorter", text)
	}
	return d, nil
}

// percent returns a parser of N%. N must lie between the parameters least and most.
func percent(least, most uint64) func(string) (int, *flaw) {
	return func(text string) (int, *flaw) {
		digits, ok := strings.CutSuffix(text, "%")
		n, f := number(digits, most)
		if !ok || f != nil || n < least {
			g := want(fmt.Sprintf("a percentage from %d%% to %d%%", least, most), text)
			if !ok && f == nil && n >= least {
				g.hintf("write %d%%", n)
			}
			return 0, g
		}
		return int(n), nil
	}
}

func sha256Text(text string) (string, *flaw) {
	if sum, err := hex.DecodeString(text); err != nil || len(sum) != 32 {
		return "", want("a SHA-256 of 64 hexadecimal digits", text).hintf("`sha256sum FILE` prints that of a file")
	}
	return strings.ToLower(text), nil
}

// minisignKey parses a public key of minisign: the algorithm Ed, a key number of 8 bytes, and a key of 32 bytes.
func minisignKey(text string) (string, *flaw) {
	const length = 2 + 8 + 32
	if key, err := base64.StdEncoding.DecodeString(text); err != nil || len(key) != length || string(key[:2]) != "Ed" {
		return "", want("a public key of minisign", text).hintf("it is the second line of the file minisign.pub, and begins with RW")
	}
	return text, nil
}

var (
	countries = list(define("country", (&schema{Type: types{"string", "boolean"}}).titled("code of a country")), country)
	asns      = list(define("asn", anyOf(whole(1, 1<<32-1), text("^([Aa][Ss])?[1-9][0-9]*$")).titled("number of an autonomous system")), asn)
)

// country parses the code of a country (ISO 3166-1).
func country(text string) ([]string, *flaw) {
	code := strings.ToUpper(text)
	if len(code) != 2 || strings.ContainsFunc(code, func(c rune) bool { return c < 'A' || c > 'Z' }) {
		return nil, want("the code of a country, of two letters (ISO 3166-1)", text)
	}
	return []string{code}, nil
}

// asn parses the number of an autonomous system, with or without AS.
func asn(text string) ([]uint32, *flaw) {
	digits := text
	if len(text) > 2 && strings.EqualFold(text[:2], "AS") {
		digits = text[2:]
	}
	n, f := number(digits, 1<<32-1)
	if f != nil || n == 0 {
		return nil, want("the number of an autonomous system, from 1 to 4294967295", text)
	}
	return []uint32{uint32(n)}, nil
}

// sourceKeys are the keys that say where the entries of a set come from. A set has one of them.
var sourceKeys = []string{"file", "dynamic", "url", "country", "asn"}

// sourceNeeds maps some of sourceKeys to a second key that the set then also needs. The hint is for a set without the second key.
var sourceNeeds = map[string]struct{ key, hint string }{
	"dynamic": {"max", "declare the most entries that it shall hold, as in max: 100000"},
	"country": {"db", needsDatabase},
	"asn":     {"db", needsDatabase},
}

const needsDatabase = "name the file of a database, as in db: GeoLite2-Country.mmdb"

// belongs reports keys of a set that are not allowed for the source of the set.
func (p place) belongs(v *node, seen map[string]bool) {
	alone := func(key, to string) {
		if e := v.Get(key); e != nil {
			p.errorf(e.Pos, "%s has a meaning in sets with %s only", key, to).Hint = "remove it"
		}
	}
	if !seen["dynamic"] {
		if e := v.Get("timeout"); e != nil {
			p.errorf(e.Pos, "timeout has a meaning in dynamic sets only").Hint = "remove it"
		}
	}
	if !seen["url"] {
		for _, key := range feedKeys {
			alone(key, "url")
		}
	}
	if !seen["country"] && !seen["asn"] {
		alone("db", "country or asn")
	}
}

// feedNotes returns notes about lists that an attacker on the network path can change.
func feedNotes(sets []Set) (ns []Note) {
	for _, s := range sets {
		if f := s.Feed; f != nil && strings.HasPrefix(f.URL, "http:") && f.SHA256 == "" && f.Minisign == "" {
			ns = append(ns, Note{s.Pos, fmt.Sprintf("set %q is fetched over http: anybody on the way can change it; use https, or name the "+
				"key that it is signed with (minisign)", s.Name)})
		}
	}
	return ns
}
