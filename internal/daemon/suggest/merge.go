// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/policy"
)

// Merge returns a rule that matches all packets of two rules, and more. It has the tests that both rules have, the ports of either rule, and ranges
// that contain the lengths and TTLs of both. It returns nil when the rules have too little in common: both must test for few source ports of the same
// protocol, or must differ only in ranges.
func Merge(a, b *Signature) *Signature {
	m, alike := a.match, true // whether the rules differ only in ranges
	ports := a.match.SPort != nil && b.match.SPort != nil && a.match.SPort[0].Proto == b.match.SPort[0].Proto
	x, y := a.words(), b.words()
	all := maps.Clone(x)
	maps.Copy(all, y)
	for key := range all {
		switch both := x[key] != "" && y[key] != ""; {
		case x[key] == y[key]:
		case both && key == "length":
			m.Length = hull(a.match.Length, b.match.Length)
		case both && key == "ttl":
			m.TTL = hull(a.match.TTL, b.match.TTL)
		case key == "flags", key == "icmp", key == "fragment", key == "proto" && !ports:
			return nil
		case key == "sport" && ports:
			m.SPort, alike = union(a.match.SPort, b.match.SPort), false
		default:
			reflect.ValueOf(&m).Elem().FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, key) }).SetZero()
			alike = false
		}
	}
	if !alike && (m.SPort == nil || len(m.SPort) > fewPorts) {
		return nil
	}
	g, err := newSignature(m)
	if err != nil {
		return nil
	}
	return g
}

// words returns the keys of a rule with their values.
func (g *Signature) words() map[string]string {
	words := map[string]string{}
	for _, word := range g.match.Words() {
		key, value, _ := strings.Cut(word, ": ")
		words[key] = value
	}
	return words
}

func union(a, b []policy.Port) []policy.Port {
	list := slices.Concat(a, b)
	slices.SortFunc(list, func(x, y policy.Port) int { return strings.Compare(x.String(), y.String()) })
	return slices.Compact(list)
}

// hull returns the smallest range that contains two lists of ranges.
func hull(a, b []policy.Range) []policy.Range {
	all := a[0]
	for _, r := range slices.Concat(a, b) {
		all.First, all.Last = min(all.First, r.First), max(all.Last, r.Last)
	}
	return []policy.Range{all}
}
