// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// Loading says how a loaded ruleset starts to decide.
type Loading struct {
	Trial  time.Duration // 0: no trial
	Beside bool          // the old ruleset also decides, until SetAside or Confirm
}

// Tool is a tool of netfilter. Rulesets passed to it must be of its kind. The name "" for an old ruleset means that there is none.
type Tool struct {
	loader
	rulesetElements
	switcher
	keeper
}

// loader loads rulesets.
type loader interface {
	Load(ctx context.Context, p *Ruleset, replaces string, how Loading) error
	Verify(ctx context.Context, p *Ruleset) error  // checks that the kernel has the ruleset, and that the ruleset decides
	Restore(ctx context.Context, p *Ruleset) error // loads the ruleset in force again after Verify has found that it was changed
}

// rulesetElements changes the elements of the sets of a ruleset.
type rulesetElements interface {
	Insert(ctx context.Context, p *Ruleset, set string, e []Element) error
	Delete(ctx context.Context, p *Ruleset, set string, prefixes []netip.Prefix) error
	Elements(ctx context.Context, p *Ruleset, set string) ([]Element, error)
	Exchange(ctx context.Context, p *Ruleset, content map[string][]Element) error // replaces the whole content of sets, of all or of none
}

// switcher controls which of two rulesets decides, and until when. The comments of the implementations describe each method.
type switcher interface {
	Trial(ctx context.Context, name string) (time.Duration, State, error)
	SetReturn(ctx context.Context, name, old string, trial time.Duration) error
	Renew(ctx context.Context, name string, left time.Duration) error
	SetAside(ctx context.Context, name, old string) error
	Keep(ctx context.Context, name string) error
	Finish(ctx context.Context, name, old string) error
	Confirm(ctx context.Context, name, old string) error
	Release(ctx context.Context, name, old string) error
	Rollback(ctx context.Context, name, old string) error
}

// keeper reads and removes existing rulesets.
type keeper interface {
	Counters(ctx context.Context, name string) (map[string]Count, error)
	Remove(ctx context.Context, name string) error
	Leftovers(ctx context.Context, prefix string, keep ...string) ([]string, error)
	Clean(ctx context.Context, prefix string, keep ...string) ([]string, error)
}

// FindTool finds the tool for rulesets of a kind.
func FindTool(ctx context.Context, k Kind) (Tool, error) {
	if k == KindNft {
		n, err := FindNft(ctx)
		t := nftTool{n}
		return Tool{t, t, n, n}, err
	}
	x, err := FindIptables()
	t := iptablesTool{x}
	return Tool{t, t, x, x}, err
}

// NftWithout returns a Tool for nftables without the program nft. broken says why the program is missing. The Tool can read states and counters, and
// can remove rulesets. All its other methods return broken.
func NftWithout(broken error) Tool {
	n := &Nft{tool: tool{name: "nft", broken: broken}}
	t := nftTool{n}
	return Tool{t, t, n, n}
}

type nftTool struct{ *Nft }

func (p *Ruleset) table() Table {
	return Table{Name: p.Name, Script: p.Script, Chains: p.Chains, Fill: p.Fill}
}

func (t nftTool) Load(ctx context.Context, p *Ruleset, replaces string, how Loading) error {
	table := p.table()
	table.Beside = how.Beside
	return t.Nft.Load(ctx, table, replaces, how.Trial)
}

func (t nftTool) Verify(ctx context.Context, p *Ruleset) error { return t.Nft.Verify(ctx, p.table()) }

func (t nftTool) Restore(ctx context.Context, p *Ruleset) error { return t.Nft.Restore(ctx, p.table()) }

func (t nftTool) Insert(ctx context.Context, p *Ruleset, set string, e []Element) error {
	return t.Nft.Insert(ctx, p.Name, set, e)
}

func (t nftTool) Delete(ctx context.Context, p *Ruleset, set string, prefixes []netip.Prefix) error {
	return t.Nft.Delete(ctx, p.Name, set, prefixes)
}

func (t nftTool) Elements(ctx context.Context, p *Ruleset, set string) ([]Element, error) {
	return t.Nft.Elements(ctx, p.Name, set)
}

// LacksIPv6 returns the reason why a tool does not filter IPv6 although the kernel has it. It returns nil when the tool filters IPv6, or when the
// kernel has none.
func (t Tool) LacksIPv6() error {
	if x, ok := t.keeper.(*Iptables); ok && x.lacks6 != nil {
		return fmt.Errorf("ip6tables does not work on this host: %w", x.lacks6)
	}
	return nil
}

// complete returns an error for a ruleset with IPv6 rules if the tool cannot read these rules now.
func (t iptablesTool) complete(p *Ruleset) error {
	if p.V6 == "" || p.Only4 {
		return nil
	}
	return t.lacks6
}

type iptablesTool struct{ *Iptables }

func (p *Ruleset) chains() Rules {
	return Rules{Name: p.Name, IPSet: p.IPSet, V4: p.V4, V6: p.V6, Hooks: p.Hooks, Fill: p.Fill}
}

func (t iptablesTool) Load(ctx context.Context, p *Ruleset, replaces string, how Loading) error {
	if err := t.complete(p); err != nil {
		return err
	}
	r := p.chains()
	r.Beside = how.Beside
	return t.Iptables.Load(ctx, r, replaces, how.Trial)
}

func (t iptablesTool) Verify(ctx context.Context, p *Ruleset) error {
	if err := t.complete(p); err != nil {
		return err
	}
	return t.Iptables.VerifyHooked(ctx, p.chains())
}

func (t iptablesTool) Restore(ctx context.Context, p *Ruleset) error {
	if err := t.complete(p); err != nil {
		return err
	}
	return t.Iptables.Restore(ctx, p.chains())
}

func (t iptablesTool) Insert(ctx context.Context, _ *Ruleset, set string, e []Element) error {
	return t.Iptables.Insert(ctx, set, e)
}

func (t iptablesTool) Delete(ctx context.Context, _ *Ruleset, set string, prefixes []netip.Prefix) error {
	return t.Iptables.Delete(ctx, set, prefixes)
}

func (t iptablesTool) Elements(ctx context.Context, _ *Ruleset, set string) ([]Element, error) {
	return t.Iptables.Elements(ctx, set)
}
