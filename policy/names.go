package policy

import (
	"errors"
	"strings"
)

const nameForm = "a domain name, as in evil.example"

// The limits of names (RFC 1035, 2.3.4); 255 octets in a message are 253 characters of text.
const (
	maxLabel = 63
	maxName  = 253
)

// ParseName reads a domain name as the policy and lists of names have it. It returns the name in lower case, without the
// dot at the end; the root is "".
func ParseName(text string) (string, error) {
	name, f := domainName(text)
	if f != nil {
		return "", errors.New("a name " + f.msg)
	}
	return name, nil
}

// domainName reads a domain name.
func domainName(text string) (string, *flaw) {
	if text == "." {
		return "", nil
	}
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	if strings.Trim(name, nameLetters) != "" {
		return "", nameHint(want(nameForm, text), text)
	}
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			return "", nameHint(want(nameForm, text), text)
		case len(label) > maxLabel:
			f := want("a domain name with at most 63 characters between dots", text)
			return "", f
		}
	}
	if len(name) > maxName {
		return "", want("a domain name of at most 253 characters", text)
	}
	return name, nil
}

// isName reports whether text is a domain name.
func isName(text string) bool { _, f := domainName(text); return f == nil }

// nameLetters are the letters of names: those of hosts, and _ of service names (RFC 8552).
const nameLetters = "abcdefghijklmnopqrstuvwxyz0123456789-_."

// nameHint explains a text that is no domain name.
func nameHint(f *flaw, text string) *flaw {
	bare := strings.TrimLeft(text, "*.")
	switch {
	case bare != text && bare != "" && isName(bare):
		return f.hintf("write %s: a name stands for all below it, too", bare)
	case text == "*":
		return f.hintf("leave name out, and every name matches")
	case text == "":
		return f.hintf("the root, above all names, is a single dot")
	case strings.Contains(text, "://"):
		return f.hintf("write the host's name only")
	case strings.ContainsFunc(text, func(r rune) bool { return r > 127 }):
		return f.hintf("write it in its ASCII form, which begins with xn-- (punycode)")
	case strings.Contains(text, "*"):
		return f.hintf("patterns are not supported: a name stands for itself and all below it")
	case strings.Contains(text, ".."):
		return f.hintf("there is nothing between two dots")
	}
	return f
}

// dnsNames reads the names that queries ask for.
func (p place) dnsNames(to *DNS, v *node) {
	p.each("name", v, func(w *node) {
		n := DNSName{Pos: w.pos}
		var f *flaw
		switch set, isSet := strings.CutPrefix(w.text, "$"); {
		case isSet:
			n.Set, f = set, p.r.setFlaw(set, nameSet)
		case p.r.sets[w.text] == nameSet:
			f = want(nameForm, w.text).hintf("%q is a set: write $%s", w.text, w.text)
		default:
			n.Name, f = domainName(w.text)
		}
		if f != nil {
			p.flawed(w.pos, "name", listHint(f, "name", w, v))
			return
		}
		to.Names = append(to.Names, n)
	})
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
		if e := v.entry(k.name); e != nil && k.read != nil {
			p.errorf(e.pos, "it has both names and %s", e.key).Hint = nameSetHint(e.key)
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
	case v.kind == mapping:
		seen := readKeys(p, "names", v, nameListKeys, to)
		p.require(v, seen, "file", "write names: {file: PATH}, or a list of names")
		return
	case v.kind == list && len(v.items) == 0:
		to.Names = []string{}
		return
	}
	p.each("names", v, func(w *node) {
		name, f := domainName(w.text)
		if f == nil {
			to.Names = append(to.Names, name)
			return
		}
		switch {
		case strings.HasPrefix(w.text, "$") || p.r.sets[w.text] != noSet:
			f.hintf("a set cannot hold another; name both where they are used: name: [$a, $b]")
		case strings.HasPrefix(w.text, "/") || strings.HasPrefix(w.text, "./"):
			f.hintf("a list in a file is written names: {file: %s}", w.text)
		default:
			f = listHint(f, "names", w, v)
		}
		p.flawed(w.pos, "an entry", f)
	})
}
