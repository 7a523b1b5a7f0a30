// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"net/netip"
	"strings"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// element returns the value of a set's element, and its comment. The value may be wrapped in an object with a timeout
// or a comment.
func element(v any) (value any, comment string) {
	if wrapped, ok := member(v, "elem").(map[string]any); ok {
		comment, _ = wrapped["comment"].(string)
		return wrapped["val"], comment
	}
	return v, ""
}

// member returns a member of a JSON object, or nil if there is none.
func member(v any, name string) any {
	if m, ok := v.(map[string]any); ok {
		return m[name]
	}
	return nil
}

// addrRange reads an address, a prefix or a range.
func addrRange(v any) (netipx.IPRange, bool) {
	switch x := v.(type) {
	case string:
		return AnyRange(x)
	case map[string]any:
		if p, ok := x["prefix"].(map[string]any); ok {
			addr, _ := p["addr"].(string)
			length, _ := p["len"].(float64)
			a, err := netip.ParseAddr(addr)
			if err != nil {
				return netipx.IPRange{}, false
			}
			prefix, err := a.Prefix(int(length))
			return netipx.RangeOfPrefix(prefix), err == nil
		}
		if r, ok := x["range"].([]any); ok && len(r) == 2 {
			first, _ := r[0].(string)
			last, _ := r[1].(string)
			return AnyRange(first + "-" + last)
		}
	}
	return netipx.IPRange{}, false
}

// kind reads a value of one kind in a match, a number or a word.
type kind func(v any) (uint32, bool)

// named returns a kind whose values are numbers up to limit, or words.
func named(limit uint32, words map[string]uint32) kind {
	return func(v any) (uint32, bool) {
		switch x := v.(type) {
		case float64:
			return uint32(x), x >= 0 && x <= float64(limit) && x == float64(uint32(x))
		case string:
			if n, ok := words[strings.ToLower(x)]; ok {
				return n, true
			}
			return Number(x, uint64(limit))
		case bool: // `missing` of fib and exthdr
			return 0, false
		}
		return 0, false
	}
}

// spans reads a value, a range, or an anonymous set of values and ranges.
func (k kind) spans(v any) (Values, bool) {
	v, _ = element(v)
	if list, ok := listOf(v); ok {
		out := Values{}
		for _, e := range list {
			w, ok := k.spans(e)
			if !ok {
				return nil, false
			}
			out = append(out, w...)
		}
		return Normalize(out), true
	}
	if r, ok := member(v, "range").([]any); ok && len(r) == 2 {
		first, ok1 := k(r[0])
		last, ok2 := k(r[1])
		return Values{{First: first, Last: last}}, ok1 && ok2 && first <= last
	}
	if p, ok := member(v, "prefix").(map[string]any); ok && p != nil {
		return nil, false
	}
	n, ok := k(v)
	return Only(n), ok
}

// listOf returns the elements of an anonymous set or of a list.
func listOf(v any) ([]any, bool) {
	if set, ok := member(v, "set").([]any); ok {
		return set, true
	}
	list, ok := v.([]any)
	return list, ok
}

// listOrOne returns a list. nft prints a list of one element as the element itself.
func listOrOne(v any) []any {
	if list, ok := v.([]any); ok {
		return list
	}
	if v == nil {
		return nil
	}
	return []any{v}
}

// bits reads flags: one flag, a list, or an expression with |.
func (k kind) bits(v any) (uint32, bool) {
	list, ok := v.([]any)
	if !ok {
		list, ok = member(v, "|").([]any)
	}
	if !ok {
		return k(v)
	}
	sum := uint32(0)
	for _, e := range list {
		n, ok := k.bits(e)
		if !ok {
			return 0, false
		}
		sum |= n
	}
	return sum, true
}

// The kinds of values.
var (
	portKind   = named(MaxPort, Services)
	protoKind  = named(255, ProtoNumbers)
	stateKind  = named(0, StateNames)
	flagKind   = named(255, TCPFlag)
	byteKind   = named(255, nil)
	lengthKind = named(65535, nil)
	dscpKind   = named(63, DSCPNumbers)
	familyKind = named(0, map[string]uint32{
		"ipv4": packet.FamilyIPv4, "ipv6": packet.FamilyIPv6, "ip": packet.FamilyIPv4, "ip6": packet.FamilyIPv6,
	})
)

// destination reads the body of dnat or redirect.
func destination(body any) *Destination {
	d := &Destination{Known: true}
	for key, v := range map[string]any{"addr": member(body, "addr"), "port": member(body, "port")} {
		switch {
		case v == nil:
		case key == "addr":
			d.Addr, d.Known = addrRange(v)
		default:
			d.Ports, d.Known = portKind.spans(v)
		}
		if !d.Known {
			break
		}
	}
	return d
}
