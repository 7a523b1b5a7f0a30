package control

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/codegen/iptables"
	netfiltergen "github.com/floodwall/floodwall/internal/codegen/netfilter"
	"github.com/floodwall/floodwall/internal/codegen/nftables"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/netfilter"
)

// ruleset is what a generation has in netfilter: all that is needed to load it, and to find its counters and sets there.
type ruleset struct {
	Kind kind   `json:"kind"`
	Name string `json:"name"` // of the table, or of the generation of chains and sets

	Script string           `json:"script,omitempty"` // of nft
	Chains []string         `json:"chains,omitempty"`
	IPSet  string           `json:"ipset,omitempty"` // of iptables
	V4     string           `json:"v4,omitempty"`
	V6     string           `json:"v6,omitempty"`
	Hooks  []netfilter.Hook `json:"hooks,omitempty"`

	Rules   []string            `json:"rules,omitempty"` // the counter of each rule of the manifest; "" where it has none here
	Default string              `json:"default,omitempty"`
	Checks  map[string]string   `json:"checks,omitempty"` // by the check's name
	Sets    map[string]setNames `json:"sets,omitempty"`   // by the policy's name; dynamic ones only

	Proxies map[int]netfiltergen.Proxy `json:"proxies,omitempty"` // the counters of SYNPROXY, by the number of the protection from 0 on

	fill map[string][]netfilter.Element // what its dynamic sets begin with
}

// kind is the tool that loads a ruleset.
type kind string

const (
	kindNft      kind = "nft"
	kindIptables kind = "iptables"
)

// setNames names the sets of netfilter that hold the entries of one dynamic set: addresses, and prefixes.
type setNames struct{ V4, V6, Nets4, Nets6 string }

// names lists the sets, each once.
func (s setNames) names() (names []string) {
	for _, n := range []string{s.V4, s.V6, s.Nets4, s.Nets6} {
		if n != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// of is the set that holds a prefix.
func (s setNames) of(p netip.Prefix) string {
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

// nftRuleset is what nftables gets of a plan, nil when that is nothing.
func nftRuleset(c *Compiled, n *nftables.Ruleset) *ruleset {
	p := &ruleset{Kind: kindNft, Name: n.Table, Script: n.Script, Chains: n.Chains, Rules: n.Rules, Default: n.Default,
		Proxies: n.Proxies, Checks: map[string]string{}, Sets: map[string]setNames{}}
	for check, counter := range n.Checks {
		p.Checks[check.String()] = counter
	}
	for i, s := range n.Sets {
		if dynamicByName(&c.Program.Sets[i]) {
			p.Sets[c.Program.Sets[i].Name] = setNames{s.V4, s.V6, s.Nets4, s.Nets6}
		}
	}
	return p
}

// iptablesRuleset is what iptables and ipset get of a plan.
func iptablesRuleset(c *Compiled, x *iptables.Ruleset, name string) *ruleset {
	p := &ruleset{Kind: kindIptables, Name: strings.ToUpper(name), IPSet: x.IPSet, V4: x.V4, V6: x.V6, Rules: x.Rules, Default: x.Default,
		Proxies: x.Proxies, Checks: map[string]string{}, Sets: map[string]setNames{}}
	for _, h := range x.Hooks {
		p.Hooks = append(p.Hooks, netfilter.Hook{Table: h.Table, Chain: h.Chain, Target: h.Target, Device: h.Device})
	}
	for check, comment := range x.Checks {
		p.Checks[check.String()] = comment
	}
	for i, s := range x.Sets {
		if dynamicByName(&c.Program.Sets[i]) {
			p.Sets[c.Program.Sets[i].Name] = setNames{s.V4, s.V6, s.V4, s.V6}
		}
	}
	return p
}

func dynamicByName(s *ir.Set) bool { return s.Dynamic != nil && !s.Dynamic.Local }

// standIn is a ruleset without rules, which takes the place of another for the time of a trial.
func standIn(of *ruleset, name string) *ruleset {
	if of.Kind == kindNft {
		return &ruleset{Kind: kindNft, Name: name, Script: fmt.Sprintf("table inet %s {\n}\n", name)}
	}
	return &ruleset{Kind: kindIptables, Name: strings.ToUpper(name)}
}

// namePrefix is what the names of all rulesets of an instance begin with. Instances in other directories have other names.
func (in Instance) namePrefix() string {
	dir := filepath.Clean(in.Dir)
	if dir == datapath.DefaultDir {
		return "floodwall-"
	}
	h := fnv.New32a()
	h.Write([]byte(dir))
	return fmt.Sprintf("floodwall%08x-", h.Sum32())
}

// nextName is a name that no ruleset of the manifests has.
func (in Instance) nextName(manifests []*manifest) string {
	last := 0
	for _, m := range manifests {
		for _, p := range m.all() {
			text := p.Name[strings.LastIndexByte(p.Name, '-')+1:]
			if n, err := strconv.Atoi(text); err == nil {
				last = max(last, n)
			}
		}
	}
	return in.namePrefix() + strconv.Itoa(last+1)
}

// prefixOf is what the names of rulesets of a kind begin with.
func (in Instance) prefixOf(k kind) string {
	if k == kindIptables {
		return strings.ToUpper(in.namePrefix())
	}
	return in.namePrefix()
}

// ruleset is the ruleset of a policy that decides, nil when XDP does all.
func (m *manifest) ruleset() *ruleset {
	if len(m.Rulesets) == 0 {
		return nil
	}
	return m.Rulesets[0]
}

// all are the rulesets that there are during a trial.
func (m *manifest) all() []*ruleset { return slices.Concat(m.Rulesets, m.StandIn) }

// rulesetOf is the ruleset of a kind, nil when there is none.
func (m *manifest) rulesetOf(k kind) *ruleset {
	if m != nil {
		for _, p := range m.Rulesets {
			if p.Kind == k {
				return p
			}
		}
	}
	return nil
}
