// SPDX-License-Identifier: Apache-2.0

package shorthand

import (
	"reflect"
	"slices"
	"strconv"

	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/policy/edit"
)

// FoundPart is a part of an entry: the request says everything that the entry matches, apart from a key with more items.
type FoundPart struct {
	Found
	key    string
	want   policy.Match
	policy *policy.Policy
}

// listed are the keys that a request can have, and of which it can say a part.
var listed = map[string]func(m *policy.Match) any{
	"port":  func(m *policy.Match) any { return &m.Port },
	"sport": func(m *policy.Match) any { return &m.SPort },
	"from":  func(m *policy.Match) any { return &m.From },
	"to":    func(m *policy.Match) any { return &m.To },
}

// FindPart returns the entries of which the request says a part, such as one of several ports. With a name in the request it finds this entry only.
func (r *Request) FindPart(p *policy.Policy) (list []FoundPart, err error) {
	want, err := r.parsed(p)
	if err != nil {
		return nil, err
	}
	add := func(is policy.Match, found Found) {
		is = plainMatch(is)
		for key := range listed {
			if (r.Name == "" || r.Name == found.Name) && isPart(want, is, key) {
				list = append(list, FoundPart{found, key, want, p})
			}
		}
	}
	r.each(p, add)
	return list, nil
}

// isPart reports whether a match says a part of one key of another match, and all of the others.
func isPart(part, of policy.Match, key string) bool {
	var covered bool
	switch some, all := listed[key](&part), listed[key](&of); some := some.(type) {
	case *[]policy.Port:
		all := all.(*[]policy.Port)
		covered = len(*some) > 0 && len(*all) > 0 && len(lessPorts(*some, *all)) == 0
		*some, *all = nil, nil
	case *[]policy.Addr:
		all := all.(*[]policy.Addr)
		covered = len(*some) > 0 && len(lessAddrs(*some, *all)) == 0
		*some, *all = nil, nil
	}
	return covered && reflect.DeepEqual(part, of)
}

// Remove removes the part from the text of the policy. An item that has more than the part, such as a port of TCP and UDP, becomes what is left of it.
func (f *FoundPart) Remove(text []byte) ([]byte, error) {
	words := edit.Words(text, f.List, f.Index, f.key)
	for i, word := range slices.Backward(words) {
		left, is := f.left(word)
		if !is {
			continue
		}
		var err error
		if text, err = edit.Shrink(text, f.List, f.Index, edit.Part{Key: f.key, Item: i}, left); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// left returns the words for an item without the part. is reports whether the item has anything of the part.
func (f *FoundPart) left(word string) (words []string, is bool) {
	of, err := parsed(f.policy, f.key+": "+strconv.Quote(word))
	if err != nil {
		return nil, false
	}
	switch some, all := listed[f.key](&f.want), listed[f.key](&of); some := some.(type) {
	case *[]policy.Port:
		ports := *all.(*[]policy.Port)
		rest := lessPorts(ports, *some)
		for _, p := range joined(rest) {
			words = append(words, p.String())
		}
		return words, !slices.Equal(rest, ports)
	case *[]policy.Addr:
		addrs := *all.(*[]policy.Addr)
		return nil, len(lessAddrs(addrs, *some)) == 0
	}
	return nil, false
}

// lessAddrs returns the addresses of a list that are not in another one.
func lessAddrs(list, less []policy.Addr) []policy.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a policy.Addr) bool { return slices.Contains(less, a) })
}

// lessPorts returns the ports of a list without those of another one. Each port of both lists has a protocol.
func lessPorts(list, less []policy.Port) (left []policy.Port) {
	left = list
	for _, l := range less {
		var next []policy.Port
		for _, p := range left {
			if p.Proto != l.Proto || l.Last < p.First || p.Last < l.First {
				next = append(next, p)
				continue
			}
			if p.First < l.First {
				next = append(next, policy.Port{Proto: p.Proto, First: p.First, Last: l.First - 1})
			}
			if l.Last < p.Last {
				next = append(next, policy.Port{Proto: p.Proto, First: l.Last + 1, Last: p.Last})
			}
		}
		left = next
	}
	return left
}

// joined returns ports with those of both protocols as one.
func joined(list []policy.Port) (all []policy.Port) {
	const tcp, udp = 6, 17
	for _, p := range list {
		other := policy.Port{Proto: tcp + udp - p.Proto, First: p.First, Last: p.Last}
		switch {
		case !slices.Contains(list, other):
			all = append(all, p)
		case p.Proto == tcp:
			all = append(all, policy.Port{First: p.First, Last: p.Last})
		}
	}
	return all
}
