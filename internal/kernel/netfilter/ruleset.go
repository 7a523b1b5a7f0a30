// SPDX-License-Identifier: Apache-2.0

// This file has the ruleset that a policy loads into nftables, or into iptables and ipset, and the conversion of compiled programs to it.

package netfilter

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/iptables"
	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Ruleset is the part of a generation in netfilter. It has all data that is needed to load this part, and to find its counters and sets in the
// kernel.
type Ruleset struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"` // the name of the table, or of the generation of chains and sets

	Script string   `json:"script,omitempty"` // for nft
	Chains []string `json:"chains,omitempty"`
	IPSet  string   `json:"ipset,omitempty"` // for iptables and ipset
	V4     string   `json:"v4,omitempty"`
	V6     string   `json:"v6,omitempty"`
	Hooks  []Hook   `json:"hooks,omitempty"`
	Only4  bool     `json:"only4,omitempty"` // IPv6 is not filtered: ip6tables did not work when it was loaded

	Rules   []string            `json:"rules,omitempty"` // the counter of each rule in the manifest; "" if the rule has none in netfilter
	Default string              `json:"default,omitempty"`
	Checks  map[string]string   `json:"checks,omitempty"` // by the name of the check
	Sets    map[string]SetNames `json:"sets,omitempty"`   // by the name in the policy; only dynamic sets
	Live    map[string]SetNames `json:"live,omitempty"`   // by the name in the policy; only live sets, whose content is replaced while the policy runs

	Proxies map[int]plan.ProxyCounters `json:"proxies,omitempty"` // the counters of SYNPROXY, by the number of the protection, from 0

	Fill map[string][]Element `json:"-"` // the initial content of its dynamic and live sets
}

// Kind is the tool that loads a ruleset.
type Kind string

const (
	KindNft      Kind = "nft"
	KindIptables Kind = "iptables"
)

// SetNames are the names of the netfilter sets with the entries of one dynamic or live set: sets of addresses, and sets of prefixes.
type SetNames struct{ V4, V6, Nets4, Nets6 string }

// Names lists the sets, each once.
func (s SetNames) Names() (names []string) {
	for _, n := range []string{s.V4, s.V6, s.Nets4, s.Nets6} {
		if n != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// Of returns the name of the set that holds a prefix.
func (s SetNames) Of(p netip.Prefix) string {
	switch v4 := p.Addr().Is4(); {
	case v4 && p.IsSingleIP():
		return s.V4
	case v4:
		return s.Nets4
	case p.IsSingleIP():
		return s.V6
	}
	return s.Nets6
}

// named stores the netfilter names of a set, if the set is dynamic or live.
func (p *Ruleset) named(s *ir.Set, names SetNames, live bool) {
	if DynamicByName(s) {
		p.Sets[s.Name] = names
	}
	if live {
		if p.Live == nil {
			p.Live = map[string]SetNames{}
		}
		p.Live[s.Name] = names
	}
}

// OfNftables converts a program for nftables to a ruleset.
func OfNftables(p *ir.Program, n *nftables.Ruleset) *Ruleset {
	out := &Ruleset{Kind: KindNft, Name: n.Table, Script: n.Script, Chains: n.Chains, Rules: n.Rules, Default: n.Default,
		Proxies: n.Proxies, Checks: map[string]string{}, Sets: map[string]SetNames{}}
	for check, counter := range n.Checks {
		out.Checks[check.String()] = counter
	}
	for i, s := range n.Sets {
		out.named(&p.Sets[i], SetNames{s.V4, s.V6, s.Nets4, s.Nets6}, s.Live)
	}
	return out
}

// OfIptables converts a program for iptables and ipset to a ruleset.
func OfIptables(p *ir.Program, x *iptables.Ruleset, name string) *Ruleset {
	out := &Ruleset{Kind: KindIptables, Name: strings.ToUpper(name), IPSet: x.IPSet, V4: x.V4, V6: x.V6, Rules: x.Rules, Default: x.Default,
		Proxies: x.Proxies, Checks: map[string]string{}, Sets: map[string]SetNames{}}
	for _, h := range x.Hooks {
		out.Hooks = append(out.Hooks, Hook{Table: h.Table, Chain: h.Chain, Target: h.Target, Device: h.Device})
	}
	for check, comment := range x.Checks {
		out.Checks[check.String()] = comment
	}
	for i, s := range x.Sets {
		out.named(&p.Sets[i], SetNames{s.V4, s.V6, s.V4, s.V6}, s.Live)
	}
	return out
}

// DynamicByName reports whether a set is dynamic and is changed by people and limits. This is false for the set `local`.
func DynamicByName(s *ir.Set) bool { return s.Dynamic != nil && !s.Dynamic.Local }

// StandIn returns a ruleset without rules, which replaces the ruleset of during a trial.
func StandIn(of *Ruleset, name string) *Ruleset {
	if of.Kind == KindNft {
		return &Ruleset{Kind: KindNft, Name: name, Script: fmt.Sprintf("table inet %s {\n}\n", name)}
	}
	return &Ruleset{Kind: KindIptables, Name: strings.ToUpper(name)}
}

// DefaultCounter returns the name of the default's counter. It returns "" when the default has no counter, or when p is nil.
func (p *Ruleset) DefaultCounter() string {
	if p == nil {
		return ""
	}
	return p.Default
}
