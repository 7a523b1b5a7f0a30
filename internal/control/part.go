package control

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/netfilter"
)

// part is what a generation has in netfilter: all that is needed to load it, and to find its counters and sets there.
type part struct {
	Kind kind   `json:"kind"`
	Name string `json:"name"` // of the table, or of the generation of chains and sets

	Script string           `json:"script,omitempty"` // of nft
	Chains []string         `json:"chains,omitempty"`
	IPSet  string           `json:"ipset,omitempty"` // of iptables
	V4     string           `json:"v4,omitempty"`
	V6     string           `json:"v6,omitempty"`
	Hooks  []netfilter.Hook `json:"hooks,omitempty"`

	Rules   []string           `json:"rules,omitempty"` // the counter of each rule of the manifest; "" where it has none here
	Default string             `json:"default,omitempty"`
	Checks  map[string]string  `json:"checks,omitempty"` // by the check's name
	Sets    map[string]partSet `json:"sets,omitempty"`   // by the policy's name; dynamic ones only

	Proxies map[int]compile.Proxy `json:"proxies,omitempty"` // the counters of SYNPROXY, by the number of the protection from 0 on

	fill map[string][]netfilter.Element // what its dynamic sets begin with
}

// kind is the tool that loads a part.
type kind string

const (
	kindNft kind = "nft"
	kindXt  kind = "iptables"
)

// partSet names the sets of netfilter that hold the entries of one dynamic set: addresses, and prefixes.
type partSet struct{ V4, V6, Nets4, Nets6 string }

// names lists the sets, each once.
func (s partSet) names() (names []string) {
	for _, n := range []string{s.V4, s.V6, s.Nets4, s.Nets6} {
		if n != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// of is the set that holds a prefix.
func (s partSet) of(p netip.Prefix) string {
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

// nftPart is what nftables gets of a plan, nil when that is nothing.
func nftPart(c *Compiled, n *compile.Nft) *part {
	p := &part{Kind: kindNft, Name: n.Table, Script: n.Script, Chains: n.Chains, Rules: n.Rules, Default: n.Default,
		Proxies: n.Proxies, Checks: map[string]string{}, Sets: map[string]partSet{}}
	for check, counter := range n.Checks {
		p.Checks[check.String()] = counter
	}
	for i, s := range n.Sets {
		if dynamicByName(&c.Program.Sets[i]) {
			p.Sets[c.Program.Sets[i].Name] = partSet{s.V4, s.V6, s.Nets4, s.Nets6}
		}
	}
	return p
}

// xtPart is what iptables and ipset get of a plan.
func xtPart(c *Compiled, x *compile.Iptables, name string) *part {
	p := &part{Kind: kindXt, Name: strings.ToUpper(name), IPSet: x.IPSet, V4: x.V4, V6: x.V6, Rules: x.Rules, Default: x.Default,
		Proxies: x.Proxies, Checks: map[string]string{}, Sets: map[string]partSet{}}
	for _, h := range x.Hooks {
		p.Hooks = append(p.Hooks, netfilter.Hook{Table: h.Table, Chain: h.Chain, Target: h.Target, Device: h.Device})
	}
	for check, comment := range x.Checks {
		p.Checks[check.String()] = comment
	}
	for i, s := range x.Sets {
		if dynamicByName(&c.Program.Sets[i]) {
			p.Sets[c.Program.Sets[i].Name] = partSet{s.V4, s.V6, s.V4, s.V6}
		}
	}
	return p
}

func dynamicByName(s *ir.Set) bool { return s.Dynamic != nil && !s.Dynamic.Local }

// standIn is a part without rules, which takes the place of another for the time of a trial.
func standIn(of *part, name string) *part {
	if of.Kind == kindNft {
		return &part{Kind: kindNft, Name: name, Script: fmt.Sprintf("table inet %s {\n}\n", name)}
	}
	return &part{Kind: kindXt, Name: strings.ToUpper(name)}
}

// partPrefix is what the names of all parts of an instance begin with. Instances in other directories have other names.
func (in Instance) partPrefix() string {
	dir := filepath.Clean(in.Dir)
	if dir == datapath.DefaultDir {
		return "floodwall-"
	}
	h := fnv.New32a()
	h.Write([]byte(dir))
	return fmt.Sprintf("floodwall%08x-", h.Sum32())
}

// nextPart is a name that no part of the manifests has.
func (in Instance) nextPart(manifests []*manifest) string {
	last := 0
	for _, m := range manifests {
		for _, p := range m.all() {
			text := p.Name[strings.LastIndexByte(p.Name, '-')+1:]
			if n, err := strconv.Atoi(text); err == nil {
				last = max(last, n)
			}
		}
	}
	return in.partPrefix() + strconv.Itoa(last+1)
}

// loading is how a part begins to decide.
type loading struct {
	trial  time.Duration // 0 for good
	beside bool          // the old part decides too, until Succeed or Confirm
}

// tool is a tool of netfilter. Parts given to it are of its kind; "" as the name of an old one is none.
type tool interface {
	load(ctx context.Context, p *part, replaces string, how loading) error
	verify(ctx context.Context, p *part) error  // that the kernel holds it, and that it decides
	restore(ctx context.Context, p *part) error // it, as the one in force, where verify finds it changed
	insert(ctx context.Context, p *part, set string, e []netfilter.Element) error
	remove(ctx context.Context, p *part, set string, prefixes []netip.Prefix) error
	elements(ctx context.Context, p *part, set string) ([]netfilter.Element, error)

	SetAside(ctx context.Context, name, old string, trial time.Duration) error
	Renew(ctx context.Context, name string, left time.Duration) error
	Succeed(ctx context.Context, name, old string, trial time.Duration) error
	Keep(ctx context.Context, name string) error
	Finish(ctx context.Context, name, old string) error
	Confirm(ctx context.Context, name, old string) error
	Release(ctx context.Context, name, old string) error
	Rollback(ctx context.Context, name, old string) error
	Trial(ctx context.Context, name string) (time.Duration, netfilter.State, error)
	Counters(ctx context.Context, name string) (map[string]netfilter.Count, error)
	Remove(ctx context.Context, name string) error
	Leftovers(ctx context.Context, prefix string, keep ...string) ([]string, error)
	Clean(ctx context.Context, prefix string, keep ...string) ([]string, error)
}

// findTool finds the tool for parts of a kind.
func findTool(ctx context.Context, k kind) (tool, error) {
	if k == kindNft {
		n, err := netfilter.FindNft(ctx)
		return nftTool{n}, err
	}
	x, err := netfilter.FindXt()
	return xtTool{x}, err
}

type nftTool struct{ *netfilter.Nft }

func (p *part) table() netfilter.Table {
	return netfilter.Table{Name: p.Name, Script: p.Script, Chains: p.Chains, Fill: p.fill}
}

func (t nftTool) load(ctx context.Context, p *part, replaces string, how loading) error {
	table := p.table()
	table.Beside = how.beside
	return t.Load(ctx, table, replaces, how.trial)
}

func (t nftTool) verify(ctx context.Context, p *part) error { return t.Verify(ctx, p.table()) }

func (t nftTool) restore(ctx context.Context, p *part) error { return t.Restore(ctx, p.table()) }

func (t nftTool) insert(ctx context.Context, p *part, set string, e []netfilter.Element) error {
	return t.Insert(ctx, p.Name, set, e)
}

func (t nftTool) remove(ctx context.Context, p *part, set string, prefixes []netip.Prefix) error {
	return t.Delete(ctx, p.Name, set, prefixes)
}

func (t nftTool) elements(ctx context.Context, p *part, set string) ([]netfilter.Element, error) {
	return t.Elements(ctx, p.Name, set)
}

type xtTool struct{ *netfilter.Xt }

func (p *part) chains() netfilter.Rules {
	return netfilter.Rules{Name: p.Name, IPSet: p.IPSet, V4: p.V4, V6: p.V6, Hooks: p.Hooks, Fill: p.fill}
}

func (t xtTool) load(ctx context.Context, p *part, replaces string, how loading) error {
	r := p.chains()
	r.Beside = how.beside
	return t.Load(ctx, r, replaces, how.trial)
}

func (t xtTool) verify(ctx context.Context, p *part) error { return t.VerifyHooked(ctx, p.chains()) }

func (t xtTool) restore(ctx context.Context, p *part) error { return t.Restore(ctx, p.chains()) }

func (t xtTool) insert(ctx context.Context, _ *part, set string, e []netfilter.Element) error {
	return t.Insert(ctx, set, e)
}

func (t xtTool) remove(ctx context.Context, _ *part, set string, prefixes []netip.Prefix) error {
	return t.Delete(ctx, set, prefixes)
}

func (t xtTool) elements(ctx context.Context, _ *part, set string) ([]netfilter.Element, error) {
	return t.Elements(ctx, set)
}

// prefixOf is what the names of parts of a kind begin with.
func (in Instance) prefixOf(k kind) string {
	if k == kindXt {
		return strings.ToUpper(in.partPrefix())
	}
	return in.partPrefix()
}

// part is the part of a policy that decides, nil when XDP does all.
func (m *manifest) part() *part {
	if len(m.Parts) == 0 {
		return nil
	}
	return m.Parts[0]
}

// all are the parts that there are during a trial.
func (m *manifest) all() []*part { return slices.Concat(m.Parts, m.StandIn) }

// partOf is the part of a kind, nil when there is none.
func (m *manifest) partOf(k kind) *part {
	if m != nil {
		for _, p := range m.Parts {
			if p.Kind == k {
				return p
			}
		}
	}
	return nil
}
