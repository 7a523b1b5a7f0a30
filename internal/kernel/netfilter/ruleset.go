// This file has what a policy puts into netfilter, a ruleset of nftables or of iptables and ipset, and the tool that
// loads it there.

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

// Ruleset is what a generation has in netfilter: all that is needed to load it, and to find its counters and sets there.
type Ruleset struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"` // of the table, or of the generation of chains and sets

	Script string   `json:"script,omitempty"` // of nft
	Chains []string `json:"chains,omitempty"`
	IPSet  string   `json:"ipset,omitempty"` // of iptables
	V4     string   `json:"v4,omitempty"`
	V6     string   `json:"v6,omitempty"`
	Hooks  []Hook   `json:"hooks,omitempty"`
	Only4  bool     `json:"only4,omitempty"` // IPv6 is not filtered: ip6tables did not work when it was loaded

	Rules   []string            `json:"rules,omitempty"` // the counter of each rule of the manifest; "" where it has none here
	Default string              `json:"default,omitempty"`
	Checks  map[string]string   `json:"checks,omitempty"` // by the check's name
	Sets    map[string]SetNames `json:"sets,omitempty"`   // by the policy's name; dynamic ones only
	Live    map[string]SetNames `json:"live,omitempty"`   // likewise, those whose content is exchanged

	Proxies map[int]plan.ProxyCounters `json:"proxies,omitempty"` // the counters of SYNPROXY, by the number of the protection from 0 on

	Fill map[string][]Element `json:"-"` // what its dynamic and live sets begin with
}

// Kind is the tool that loads a ruleset.
type Kind string

const (
	KindNft      Kind = "nft"
	KindIptables Kind = "iptables"
)

// SetNames names the sets of netfilter that hold the entries of one dynamic or live set: addresses, and prefixes.
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

// Of is the set that holds a prefix.
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

// named notes the names that a set has in the kernel, if it is dynamic, or live: its content is exchanged.
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

// OfNftables is the ruleset of a program for nftables.
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

// OfIptables is the ruleset of a program for iptables and ipset.
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

// DynamicByName reports whether a set is a dynamic one that people and limits change, and not `local`.
func DynamicByName(s *ir.Set) bool { return s.Dynamic != nil && !s.Dynamic.Local }

// StandIn is a ruleset without rules, which takes the place of another for the time of a trial.
func StandIn(of *Ruleset, name string) *Ruleset {
	if of.Kind == KindNft {
		return &Ruleset{Kind: KindNft, Name: name, Script: fmt.Sprintf("table inet %s {\n}\n", name)}
	}
	return &Ruleset{Kind: KindIptables, Name: strings.ToUpper(name)}
}

// DefaultCounter is the counter of the default, "" when it has none, or when p is nil.
func (p *Ruleset) DefaultCounter() string {
	if p == nil {
		return ""
	}
	return p.Default
}
