package policy

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Feed says how a set is filled by a list that is fetched over HTTP.
type Feed struct {
	URL      string
	Every    time.Duration // how often it is fetched
	Shrink   int           // percent of the entries before, below which a new list is held until somebody accepts it
	Grow     int           // percent of them, above which it is held
	Format   string        // "": as the list looks
	SHA256   string        // of the list, in hexadecimal digits; "": any
	Minisign string        // the public key that the list is signed with; "": it need not be
}

// Geo says which addresses of a database in MaxMind's format a set has.
type Geo struct {
	Countries []string // codes of ISO 3166-1, in upper case
	ASNs      []uint32
	DB        string // file, as written, or a copy that stands for it
	Written   string // the file as the policy names it
}

// The defaults of Feed, and the bounds of its times.
const (
	feedEvery  = 12 * time.Hour
	feedLeast  = time.Hour // Spamhaus asks for no more than hourly, and others change no oftener
	feedMost   = 30 * 24 * time.Hour
	feedShrink = 50
	feedGrow   = 300
)

// feedFormats are the forms of lists.
var feedFormats = map[string]string{"list": "list", "csv": "csv", "ndjson": "ndjson"}

// feedKeys are the keys of a set that only one with url has.
var feedKeys = []string{"every", "shrink", "grow", "format", "sha256", "minisign"}

func feedDefaults() Feed { return Feed{Every: feedEvery, Shrink: feedShrink, Grow: feedGrow} }

// feedURL reads the address of a list.
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

// feedPeriod reads how often a list is fetched.
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

// percent reads N% from least to most.
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

// minisignKey reads a public key of minisign: an algorithm, which is Ed, a number of 8 bytes, and a key of 32.
func minisignKey(text string) (string, *flaw) {
	const length = 2 + 8 + 32
	if key, err := base64.StdEncoding.DecodeString(text); err != nil || len(key) != length || string(key[:2]) != "Ed" {
		return "", want("a public key of minisign", text).hintf("it is the second line of the file minisign.pub, and begins with RW")
	}
	return text, nil
}

// country reads the code of a country.
func country(text string) ([]string, *flaw) {
	code := strings.ToUpper(text)
	if len(code) != 2 || strings.ContainsFunc(code, func(c rune) bool { return c < 'A' || c > 'Z' }) {
		return nil, want("the code of a country, of two letters (ISO 3166-1)", text)
	}
	return []string{code}, nil
}

// asn reads the number of an autonomous system, with or without AS.
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

// belongs reports keys of a set's mapping that mean nothing beside its source.
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

// feedNotes are the notes on lists that anybody on the way can change.
func feedNotes(sets []Set) (ns []Note) {
	for _, s := range sets {
		if f := s.Feed; f != nil && strings.HasPrefix(f.URL, "http:") && f.SHA256 == "" && f.Minisign == "" {
			ns = append(ns, Note{s.Pos, fmt.Sprintf("set %q is fetched over http: anybody on the way can change it; use https, or name the "+
				"key that it is signed with (minisign)", s.Name)})
		}
	}
	return ns
}
