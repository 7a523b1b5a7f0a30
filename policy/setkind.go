// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// setKind is the kind of a set's content.
type setKind uint8

const (
	noSet setKind = iota
	addressSet
	dynamicSet // of addresses
	liveSet    // of addresses that change while the policy runs: from a fetched list or a database
	nameSet
)

func kindOf(set *node) setKind {
	switch {
	case set.Entry("names") != nil:
		return nameSet
	case set.Entry("dynamic") != nil:
		return dynamicSet
	case set.Entry("url") != nil, set.Entry("country") != nil, set.Entry("asn") != nil:
		return liveSet
	}
	return addressSet
}

// setsOf returns the names of all sets that have one of the kinds.
func (r *reader) setsOf(kinds ...setKind) []string {
	return slices.DeleteFunc(sorted(r.sets), func(name string) bool { return !slices.Contains(kinds, r.sets[name]) })
}

// setFlaw checks the reference $name to a set. The set must have one of the kinds. It returns nil if the reference is valid.
func (r *reader) setFlaw(name string, kinds ...setKind) *flaw {
	declared := r.setsOf(kinds...)
	if slices.Contains(declared, name) {
		return nil
	}
	wantsNames := slices.Contains(kinds, nameSet)
	if r.sets[name] != noSet {
		return otherKind(name, wantsNames)
	}
	f := &flaw{msg: fmt.Sprintf("names a set that is not declared, %s", wording.Quote("$"+name))}
	switch near := wording.Nearest(name, declared); {
	case name == "local" && !wantsNames:
		f.hintf("the host's own addresses are local, without $")
	case near != "":
		f.hintf(`did you mean "$%s"?`, near)
	case len(declared) > 0:
		f.hintf("the sets are %s", strings.Join(declared, ", "))
	case wantsNames:
		f.hintf("declare it under sets, as in sets: {bad: {names: [evil.example]}}")
	default:
		f.hintf("declare it under sets, as in sets: {office: [192.0.2.0/24]}")
	}
	return f
}

// otherKind returns the flaw of a reference to a set of the wrong content: addresses where domain names are required, or the reverse.
func otherKind(name string, wantsNames bool) *flaw {
	if wantsNames {
		f := &flaw{msg: fmt.Sprintf("names a set of addresses, %s", wording.Quote("$"+name))}
		return f.hintf("a set of domain names is declared with names, as in sets: {bad: {names: [evil.example]}}")
	}
	f := &flaw{msg: fmt.Sprintf("names a set of domain names, %s", wording.Quote("$"+name))}
	return f.hintf("such a set can be used for what DNS queries ask for: dns: {name: $%s}", name)
}
