// SPDX-License-Identifier: Apache-2.0

package shorthand

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/policy/edit"
)

// Found is an entry of a policy.
type Found struct {
	List  string // edit.Rules or edit.Services
	Index int    // in the list
	Name  string
	Pos   policy.Pos
}

// Named returns the rule or service with a name, nil if there is none.
func Named(p *policy.Policy, name string) *Found {
	for i, r := range p.Rules {
		if r.Name == name {
			return &Found{edit.Rules, i, r.Name, r.Pos}
		}
	}
	for i, s := range p.Services {
		if s.Name == name {
			return &Found{edit.Services, i, s.Name, s.Pos}
		}
	}
	return nil
}

// Find returns the entries that do what the request says: they match the same packets, with the same verdict. Names do not count. With the verb Any
// the verdict does not count, and with Limit the rate does not.
func (r *Request) Find(p *policy.Policy) (list []Found, err error) {
	want, err := r.parsed(p)
	if err != nil {
		return nil, err
	}
	r.each(p, func(is policy.Match, found Found) {
		if reflect.DeepEqual(plainMatch(is), want) {
			list = append(list, found)
		}
	})
	return list, nil
}

// each calls a function for each entry that has the verdict of the request's verb.
func (r *Request) each(p *policy.Policy, is func(policy.Match, Found)) {
	for i, rule := range p.Rules {
		match := rule.Match
		if rule.Over != nil {
			match.Flags = nil // those of limitKeys
		}
		if r.fits(&rule) && reflect.DeepEqual(rule.Not, policy.Match{}) {
			is(match, Found{edit.Rules, i, rule.Name, rule.Pos})
		}
	}
	for i, s := range p.Services {
		if r.Verb == Any || r.Verb == Allow {
			is(policy.Match{Port: s.Port, From: s.From}, Found{edit.Services, i, s.Name, s.Pos})
		}
	}
}

// Shares reports whether a service has a port of the request.
func (r *Request) Shares(s policy.Service) bool {
	var of policy.Policy
	want, err := r.parsed(&of)
	return err == nil && slices.ContainsFunc(plainPorts(s.Port), func(a policy.Port) bool {
		return slices.ContainsFunc(want.Port, func(b policy.Port) bool { return a.Proto == b.Proto && a.First <= b.Last && b.First <= a.Last })
	})
}

// fits reports whether a rule has the verdict of the request's verb.
func (r *Request) fits(rule *policy.Rule) bool {
	limits := rule.Over != nil || rule.Connections != nil
	switch r.Verb {
	case Any:
		return true
	case Allow:
		return rule.Then == policy.Pass && !limits && !rule.Observe
	case Limit:
		return limits
	case Reject:
		return rule.Then == policy.Reject && !limits && !rule.Observe
	}
	return rule.Then == policy.Drop && !limits && !rule.Observe
}

// parsed returns the match of the request. It knows the sets of the policy.
func (r *Request) parsed(p *policy.Policy) (policy.Match, error) {
	return parsed(p, strings.Join(r.match(), ", "))
}

// parsed returns the match with some keys. It knows the sets of the policy.
func parsed(p *policy.Policy, keys string) (policy.Match, error) {
	var sets []string
	for _, s := range p.Sets {
		sets = append(sets, fmt.Sprintf("%q: []", s.Name))
	}
	text := fmt.Sprintf("devices: [any]\nchecks: off\nsets: {%s}\nrules:\n  - {name: it, %s, then: pass}\n", strings.Join(sets, ", "), keys)
	of, err := policy.Parse("rule", []byte(text))
	if err != nil {
		mistake := err.(policy.Errors)[0]
		return policy.Match{}, hinted(mistake)
	}
	return plainMatch(of.Rules[0].Match), nil
}

// plainMatch returns a match in a form in which equal matches are equal values: without positions, and with each port of each protocol in its place.
func plainMatch(m policy.Match) policy.Match {
	m.From, m.To = plainAddrs(m.From), plainAddrs(m.To)
	m.Port, m.SPort = plainPorts(m.Port), plainPorts(m.SPort)
	return m
}

func plainAddrs(list []policy.Addr) []policy.Addr {
	list = slices.Clone(list)
	for i := range list {
		list[i].Pos = policy.Pos{}
	}
	return list
}

func plainPorts(list []policy.Port) (all []policy.Port) {
	const tcp, udp = 6, 17
	for _, p := range list {
		if p.Proto != 0 {
			all = append(all, p)
			continue
		}
		all = append(all, policy.Port{Proto: tcp, First: p.First, Last: p.Last}, policy.Port{Proto: udp, First: p.First, Last: p.Last})
	}
	slices.SortFunc(all, func(a, b policy.Port) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.First, b.First))
	})
	return slices.Compact(all)
}
