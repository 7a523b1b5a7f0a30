// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// sets parses the key sets.
func (p place) sets(to *Policy, v *node) {
	if v.Kind == yamltree.Nothing {
		return
	}
	pairs, _ := p.pairs("sets", v)
	for _, e := range pairs {
		before := len(p.r.errs)
		if f := nameFlaw(e.Key); f != nil {
			p.flawed(e.Pos, "a set's name", f)
		} else if e.Key == "local" {
			p.errorf(e.Pos, "the set name local is taken: it means the host's own addresses").Hint = "choose another name"
		}
		if p.r.sets[e.Key] == nameSet {
			s := NameSet{Pos: e.Pos, Name: e.Key}
			if p.in("set %s", wording.Quote(e.Key)).nameSet(&s, e.Value); len(p.r.errs) > before {
				s.File, s.Names = "", []string{}
			}
			to.Names = append(to.Names, s)
			continue
		}
		s := Set{Pos: e.Pos, Name: e.Key}
		if p.in("set %s", wording.Quote(e.Key)).set(&s, e.Value); len(p.r.errs) > before {
			s = Set{Pos: e.Pos, Name: e.Key, Inline: []AddrRange{}}
		}
		to.Sets = append(to.Sets, s)
	}
}

// set parses the content of one set.
func (p place) set(to *Set, v *node) {
	switch {
	case v.Kind == yamltree.Broken:
	case v.Kind == yamltree.Nothing:
		p.errorf(v.Pos, "nothing is in it").Hint = "write [] for an empty set, {file: PATH} or {dynamic: true, max: N}"
	case v.Kind == yamltree.Mapping:
		p.source(to, v)
	case v.Kind == yamltree.List && len(v.Items) == 0:
		to.Inline = []AddrRange{}
	default:
		p.inline(to, v)
	}
}

// inline parses addresses that are written in the policy.
func (p place) inline(to *Set, v *node) {
	p.each("it", v, func(w *node) {
		r, f := addrRange(w.Text)
		switch {
		case f == nil:
			to.Inline = append(to.Inline, r)
			return
		case strings.HasPrefix(w.Text, "$") || p.r.sets[w.Text] != noSet:
			f.hintf("a set cannot hold another; name both where they are used: from: [$a, $b]")
		case w.Text == "local":
			f.hintf("write from: [$set, local] where both are meant")
		case strings.HasPrefix(w.Text, "/") || strings.HasPrefix(w.Text, "./") || strings.HasSuffix(w.Text, ".txt"):
			f.hintf("a list in a file is written {file: %s}", w.Text)
		case strings.Contains(w.Text, ".") && strings.HasPrefix(f.hint, "names are") && isName(w.Text):
			f.hintf("names are not looked up; a set of names that DNS queries ask for is written {names: [%s]}", w.Text)
		default:
			f = listHint(f, to.Name, w, v)
		}
		p.flawed(w.Pos, "an entry", f)
	})
}

// setForm is the mapping form of a set.
type setForm struct {
	set     *Set
	dynamic bool
	timeout time.Duration
	feed    Feed
	geo     Geo
}

var setKeys = []key[setForm]{
	{name: "file", value: into(filePath, func(to *setForm) *string { return &to.set.File }),
		doc: "A file with one address, prefix or range on each line, also compressed by gzip. It can have lines `first last`, `address " +
			"mask` and `name:first-last` (P2P). A relative path starts at the directory of the policy.", examples: `"blocked.txt"`},
	{name: "dynamic", value: into(word(enum(true, "true", "on", "yes").titled("`true`"), isTrue), func(to *setForm) *bool { return &to.dynamic }),
		doc: "`floodwall block` and limits with `ban` fill the set.", examples: `true`},
	{name: "max", value: into(capacity, func(to *setForm) *int { return &to.set.Max }),
		doc: "The most entries of the set, required for dynamic sets. A fetched list with more is refused.", examples: `100000`},
	{name: "timeout", value: into(word(text("").titled("duration"), entryTime), func(to *setForm) *time.Duration { return &to.timeout }),
		doc: "How long an entry of a dynamic set lasts when `block` does not say. When left out: for ever.", examples: `"1h"`},
	{name: "url", value: into(word(text("^https?://").titled("address"), feedURL), func(to *setForm) *string { return &to.feed.URL }),
		doc: "A list that `apply` fetches and `floodwall daemon` keeps up to date, without own addresses, gateways, resolvers, sessions " +
			"and `never`.", examples: `"https://lists.example/drop.txt"`},
	{name: "every",
		value: into(word(text("").titled("duration, from `1h` to `30d`"), feedPeriod), func(to *setForm) *time.Duration { return &to.feed.Every }),
		doc:   "How often the list is fetched.", usual: `"12h"`, examples: `"12h"`},
	{name: "shrink",
		value: into(word(text("^[0-9]+%$").titled("percentage, up to `100%`"), percent(0, 100)), func(to *setForm) *int { return &to.feed.Shrink }),
		doc:   "A new list with fewer entries than this share of the old one waits for `floodwall feeds accept`.", usual: `"50%"`,
		examples: `"50%"`},
	{name: "grow",
		value: into(word(text("^[0-9]+%$").titled("percentage, from `100%`"), percent(100, 100_000)), func(to *setForm) *int { return &to.feed.Grow }),
		doc:   "The same for a list with more entries than this share.", usual: `"300%"`,
		examples: `"300%"`},
	{name: "format", value: into(feedFormats.form(), func(to *setForm) *string { return &to.feed.Format }),
		doc:      "The form of the list: as in files of sets, CSV of ranges, or a JSON object on each line. When left out: as it looks.",
		examples: `"ndjson"`},
	{name: "sha256",
		value: into(word(text("^[0-9a-fA-F]{64}$").titled("64 hexadecimal digits"), sha256Text), func(to *setForm) *string { return &to.feed.SHA256 }),
		doc:   "The SHA-256 of the list.", examples: `"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`},
	{name: "minisign", value: into(word(text("").titled("public key"), minisignKey), func(to *setForm) *string { return &to.feed.Minisign }),
		doc:      "The minisign key of the list's signature, which is at the list's address with `.minisig` behind it.",
		examples: `"RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"`},
	{name: "country", value: into(countries, func(to *setForm) *[]string { return &to.geo.Countries }),
		doc: "The addresses of these countries (ISO 3166-1), by the database `db`.", examples: `["XX", "YY"]`},
	{name: "asn", value: into(asns, func(to *setForm) *[]uint32 { return &to.geo.ASNs }),
		doc: "The addresses of these autonomous systems, by the database `db`.", examples: `[64500]`},
	{name: "db", value: custom(place.database, filePath.schema),
		doc: "A database in MaxMind's format (mmdb). `floodwall daemon` reads it again when it changes.", examples: `"GeoLite2-Country.mmdb"`},
}

// database parses the key db.
func (p place) database(to *setForm, v *node) {
	to.geo.DB = filePath.read(p, "db", v)
	to.geo.Written = to.geo.DB
}

var setsSchema = &schema{
	Title: "mapping of names to sets", Type: types{"object", "null"},
	PropertyNames: &schema{Pattern: "^" + namePattern + "$", Not: enum("local")}, AdditionalProperties: setSchema,
}

var setSchema = func() *schema {
	source := object(setKeys).titled("where the addresses come from")
	for _, key := range sourceKeys {
		needs := &schema{Required: []string{key}}
		if other := sourceNeeds[key].key; other != "" {
			needs.Required = append(needs.Required, other)
		}
		source.OneOf = append(source.OneOf, needs)
	}
	return define("set", anyOf(addressSchema,
		(&schema{Type: types{"array"}, Items: addressSchema}).described("Addresses, prefixes and ranges."),
		source, object(nameSetKeys).described("Names of domains, for what DNS queries ask for.")).titled("set"))
}()

// source parses a set whose value is a mapping. The mapping has the source of the set's content.
func (p place) source(to *Set, v *node) {
	form := defaults(v.Pos, setKeys)
	form.set = to
	seen := readKeys(p, "it", v, setKeys, &form)
	if seen == nil || v.Lacks {
		return
	}
	var from []string
	for _, key := range sourceKeys {
		if seen[key] {
			from = append(from, key)
		}
	}
	switch {
	case len(from) == 0:
		p.errorf(v.Pos, "it says neither file nor dynamic, nor url, country or asn").Hint =
			"write {file: PATH}, {dynamic: true, max: N}, {url: URL} or a list of addresses"
		return
	case len(from) > 1:
		p.errorf(v.Pos, "it has both %s and %s", from[0], from[1]).Hint =
			"make two sets, and name both where they are used: from: [$a, $b]"
		return
	}
	switch from[0] {
	case "dynamic":
		to.Dynamic = &Dynamic{Timeout: form.timeout}
	case "url":
		to.Feed = &form.feed
	case "country", "asn":
		to.Geo = &form.geo
	}
	if other := sourceNeeds[from[0]]; other.key != "" {
		p.require(v, seen, other.key, other.hint)
	}
	p.belongs(v, seen)
}

var filePath = word(bare("").titled("file name"), path)

func path(text string) (string, *flaw) {
	switch {
	case text == "" || strings.ContainsRune(text, 0):
		return "", want("the path of a file", text)
	case strings.Contains(text, "://"):
		return "", want("the path of a file", text).hintf("a list that is fetched is written {url: %s}", text)
	}
	return text, nil
}

func isTrue(text string) (bool, *flaw) {
	if on, ok := switches[text]; !ok || !on {
		return false, want("true", text).hintf("for a set with a fixed content leave dynamic out")
	}
	return true, nil
}

var capacity = word(numeral(1, math.MaxInt32, positive), readCapacity)

// readCapacity parses a number of entries. Its upper limit is that of a signed 32-bit index, which the kernel's maps use.
func readCapacity(text string) (int, *flaw) {
	n, f := number(text, math.MaxInt32)
	if f == nil && n > 0 {
		return int(n), nil
	}
	g := want(fmt.Sprintf("a number from 1 to %d", math.MaxInt32), text)
	if f != nil {
		g.hint = f.hint
	}
	return 0, g
}
