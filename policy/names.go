// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/policy/yamltree"
)

// dnsNames parses the key name: the names in queries.
func (p place) dnsNames(to *DNS, v *node) {
	p.each("name", v, func(w *node) {
		n := DNSName{Pos: w.Pos}
		var f *flaw
		switch set, isSet := strings.CutPrefix(w.Text, "$"); {
		case isSet:
			n.Set, f = set, p.r.setFlaw(set, nameSet)
		case p.r.sets[w.Text] == nameSet:
			f = want(nameForm, w.Text).hintf("%q is a set: write $%s", w.Text, w.Text)
		default:
			n.Name, f = domain(w.Text)
		}
		if f != nil {
			p.flawed(w.Pos, "name", listHint(f, "name", w, v))
			return
		}
		to.Names = append(to.Names, n)
	})
}

// nameNotes returns notes about names that look like file names: `names: names.txt` does not read a file.
func nameNotes(sets []NameSet) []Note {
	var ns []Note
	for _, s := range sets {
		for _, name := range s.Names {
			if strings.HasSuffix(name, ".txt") {
				ns = append(ns, Note{s.Pos, fmt.Sprintf(
					"set %q has %s for a domain name; a list in a file is written names: {file: %[2]s}", s.Name, name)})
			}
		}
	}
	return ns
}

// nameSetKeys are the keys of a set of domain names. nameListKeys are the keys of names if its value is a mapping.
var nameSetKeys = []key[NameSet]{
	{name: "names", value: custom(place.names, namesSchema),
		doc: "Domain names for the key `dns`: a list, or `{file: FILE}` with one name on each line.", examples: `["evil.example"]`,
		must: "write names: [evil.example], or names: {file: PATH}"},
}

var nameListKeys = []key[NameSet]{
	{name: "file", value: into(word(bare(""), path), func(to *NameSet) *string { return &to.File }),
		doc: "A file with one name on each line, or a hosts file, a response policy zone, rules `||name^` of ad blockers, or lines of dnsmasq " +
			"or unbound that block names. A relative path starts at the directory of the policy.", examples: `"names.txt"`,
		must: "write names: {file: PATH}, or a list of names"},
}

// namesSchema is the schema of names, where a list may be empty.
var namesSchema = anyOf(domainSchema, &schema{Type: types{"array"}, Items: domainSchema}, object(nameListKeys)).
	titled("list of domain names, or `{file}`")

// nameSet parses a set of domain names.
func (p place) nameSet(to *NameSet, v *node) {
	for _, k := range setKeys {
		if e := v.Entry(k.name); e != nil {
			p.errorf(e.Pos, "it has both names and %s", e.Key).Hint = nameSetHint(e.Key)
			return
		}
	}
	readKeys(p, "it", v, nameSetKeys, to)
}

func nameSetHint(key string) string {
	switch key {
	case "file":
		return "write {names: {file: PATH}} for a list of names; addresses need a set of their own"
	case "dynamic", "timeout":
		return "only sets of addresses are filled while Floodwall runs"
	}
	return "remove it: such a set is as large as its list"
}

// names parses the content of a set of domain names: names, or a file of them.
func (p place) names(to *NameSet, v *node) {
	switch {
	case v.Kind == yamltree.Mapping:
		readKeys(p, "names", v, nameListKeys, to)
		return
	case v.Kind == yamltree.List && len(v.Items) == 0:
		to.Names = []string{}
		return
	}
	p.each("names", v, func(w *node) {
		name, f := domain(w.Text)
		if f == nil {
			to.Names = append(to.Names, name)
			return
		}
		switch {
		case strings.HasPrefix(w.Text, "$") || p.r.sets[w.Text] != noSet:
			f.hintf("a set cannot hold another; name both where they are used: name: [$a, $b]")
		case strings.HasPrefix(w.Text, "/") || strings.HasPrefix(w.Text, "./"):
			f.hintf("a list in a file is written names: {file: %s}", w.Text)
		default:
			f = listHint(f, "names", w, v)
		}
		p.flawed(w.Pos, "an entry", f)
	})
}
