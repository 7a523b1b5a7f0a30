package policy

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// sets reads the key sets.
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

// set reads the content of one set.
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

// inline reads addresses that are written in the policy.
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
	{"file", func(p place, to *setForm, v *node) { to.set.File = scalarOf(p, "file", v, path) }},
	{"dynamic", func(p place, to *setForm, v *node) { to.dynamic = scalarOf(p, "dynamic", v, isTrue) }},
	{"max", func(p place, to *setForm, v *node) { to.set.Max = scalarOf(p, "max", v, capacity) }},
	{"timeout", func(p place, to *setForm, v *node) { to.timeout = scalarOf(p, "timeout", v, duration) }},
	{"url", func(p place, to *setForm, v *node) { to.feed.URL = scalarOf(p, "url", v, feedURL) }},
	{"every", func(p place, to *setForm, v *node) { to.feed.Every = scalarOf(p, "every", v, feedPeriod) }},
	{"shrink", func(p place, to *setForm, v *node) { to.feed.Shrink = scalarOf(p, "shrink", v, percent(0, 100)) }},
	{"grow", func(p place, to *setForm, v *node) { to.feed.Grow = scalarOf(p, "grow", v, percent(100, 100_000)) }},
	{"format", func(p place, to *setForm, v *node) { to.feed.Format = scalarOf(p, "format", v, choice(feedFormats)) }},
	{"sha256", func(p place, to *setForm, v *node) { to.feed.SHA256 = scalarOf(p, "sha256", v, sha256Text) }},
	{"minisign", func(p place, to *setForm, v *node) { to.feed.Minisign = scalarOf(p, "minisign", v, minisignKey) }},
	{"country", func(p place, to *setForm, v *node) { to.geo.Countries = values(p, "country", v, country) }},
	{"asn", func(p place, to *setForm, v *node) { to.geo.ASNs = values(p, "asn", v, asn) }},
	{"db", func(p place, to *setForm, v *node) {
		to.geo.DB = scalarOf(p, "db", v, path)
		to.geo.Written = to.geo.DB
	}},
}

// source reads where the content of a set comes from.
func (p place) source(to *Set, v *node) {
	form := setForm{set: to, feed: feedDefaults()}
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
		p.require(v, seen, "max", "declare the most entries that it shall hold, as in max: 100000")
	case "url":
		to.Feed = &form.feed
	case "country", "asn":
		to.Geo = &form.geo
		p.require(v, seen, "db", "name the file of a database, as in db: GeoLite2-Country.mmdb")
	}
	p.belongs(v, seen)
}

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

// capacity reads a number of entries. Its limit is that of a 32-bit index with a sign, which the kernel's maps use.
func capacity(text string) (int, *flaw) {
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
