package control

import (
	"context"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/netfilter"
)

// loading is how a ruleset begins to decide.
type loading struct {
	trial  time.Duration // 0 for good
	beside bool          // the old ruleset decides too, until Succeed or Confirm
}

// tool is a tool of netfilter, by what is asked of it. Rulesets given to it are of its kind; "" as the name of an old one is
// none.
type tool struct {
	loader
	elements
	switcher
	keeper
}

// loader loads rulesets.
type loader interface {
	load(ctx context.Context, p *ruleset, replaces string, how loading) error
	verify(ctx context.Context, p *ruleset) error  // that the kernel holds it, and that it decides
	restore(ctx context.Context, p *ruleset) error // it, as the one in force, where verify finds it changed
}

// elements are those of the sets of a ruleset.
type elements interface {
	insert(ctx context.Context, p *ruleset, set string, e []netfilter.Element) error
	remove(ctx context.Context, p *ruleset, set string, prefixes []netip.Prefix) error
	list(ctx context.Context, p *ruleset, set string) ([]netfilter.Element, error)
}

// switcher says which of two rulesets decides, and until when. internal/netfilter has the meaning of each method.
type switcher interface {
	Trial(ctx context.Context, name string) (time.Duration, netfilter.State, error)
	SetAside(ctx context.Context, name, old string, trial time.Duration) error
	Renew(ctx context.Context, name string, left time.Duration) error
	Succeed(ctx context.Context, name, old string, trial time.Duration) error
	Keep(ctx context.Context, name string) error
	Finish(ctx context.Context, name, old string) error
	Confirm(ctx context.Context, name, old string) error
	Release(ctx context.Context, name, old string) error
	Rollback(ctx context.Context, name, old string) error
}

// keeper has the rulesets that there are.
type keeper interface {
	Counters(ctx context.Context, name string) (map[string]netfilter.Count, error)
	Remove(ctx context.Context, name string) error
	Leftovers(ctx context.Context, prefix string, keep ...string) ([]string, error)
	Clean(ctx context.Context, prefix string, keep ...string) ([]string, error)
}

// findTool finds the tool for rulesets of a kind.
func findTool(ctx context.Context, k kind) (tool, error) {
	if k == kindNft {
		n, err := netfilter.FindNft(ctx)
		t := nftTool{n}
		return tool{t, t, n, n}, err
	}
	x, err := netfilter.FindXt()
	t := iptablesTool{x}
	return tool{t, t, x, x}, err
}

type nftTool struct{ *netfilter.Nft }

func (p *ruleset) table() netfilter.Table {
	return netfilter.Table{Name: p.Name, Script: p.Script, Chains: p.Chains, Fill: p.fill}
}

func (t nftTool) load(ctx context.Context, p *ruleset, replaces string, how loading) error {
	table := p.table()
	table.Beside = how.beside
	return t.Load(ctx, table, replaces, how.trial)
}

func (t nftTool) verify(ctx context.Context, p *ruleset) error { return t.Verify(ctx, p.table()) }

func (t nftTool) restore(ctx context.Context, p *ruleset) error { return t.Restore(ctx, p.table()) }

func (t nftTool) insert(ctx context.Context, p *ruleset, set string, e []netfilter.Element) error {
	return t.Insert(ctx, p.Name, set, e)
}

func (t nftTool) remove(ctx context.Context, p *ruleset, set string, prefixes []netip.Prefix) error {
	return t.Delete(ctx, p.Name, set, prefixes)
}

func (t nftTool) list(ctx context.Context, p *ruleset, set string) ([]netfilter.Element, error) {
	return t.Elements(ctx, p.Name, set)
}

type iptablesTool struct{ *netfilter.Xt }

func (p *ruleset) chains() netfilter.Rules {
	return netfilter.Rules{Name: p.Name, IPSet: p.IPSet, V4: p.V4, V6: p.V6, Hooks: p.Hooks, Fill: p.fill}
}

func (t iptablesTool) load(ctx context.Context, p *ruleset, replaces string, how loading) error {
	r := p.chains()
	r.Beside = how.beside
	return t.Load(ctx, r, replaces, how.trial)
}

func (t iptablesTool) verify(ctx context.Context, p *ruleset) error {
	return t.VerifyHooked(ctx, p.chains())
}

func (t iptablesTool) restore(ctx context.Context, p *ruleset) error {
	return t.Restore(ctx, p.chains())
}

func (t iptablesTool) insert(ctx context.Context, _ *ruleset, set string, e []netfilter.Element) error {
	return t.Insert(ctx, set, e)
}

func (t iptablesTool) remove(ctx context.Context, _ *ruleset, set string, prefixes []netip.Prefix) error {
	return t.Delete(ctx, set, prefixes)
}

func (t iptablesTool) list(ctx context.Context, _ *ruleset, set string) ([]netfilter.Element, error) {
	return t.Elements(ctx, set)
}
