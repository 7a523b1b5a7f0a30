package policy

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/policy/yamltree"
)

// dnsNames reads the names that queries ask for.
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

// nameNotes are the remarks on names that look like those of files, which `names: names.txt` does not read.
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

// nameSetKeys are the keys of a set of domain names, and nameListKeys those of its names in their mapping form.
var (
	nameSetKeys  = []key[NameSet]{{"names", place.names}}
	nameListKeys = []key[NameSet]{
		{"file", func(p place, to *NameSet, v *node) { to.File = scalarOf(p, "file", v, path) }},
	}
)

// nameSet reads a set of domain names.
func (p place) nameSet(to *NameSet, v *node) {
	for _, k := range setKeys {
		if e := v.Entry(k.name); e != nil && k.read != nil {
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

// names reads the content of a set of domain names: names, or a file of them.
func (p place) names(to *NameSet, v *node) {
	switch {
	case v.Kind == yamltree.Mapping:
		seen := readKeys(p, "names", v, nameListKeys, to)
		p.require(v, seen, "file", "write names: {file: PATH}, or a list of names")
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
