package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/allowlist"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Manifest is that of what runs. It returns datapath.ErrNotLoaded when nothing does.
func (in Instance) Manifest(ctx context.Context) (m *manifest.Manifest, err error) {
	err = in.reading(ctx, func(l *generation.Live) error {
		m = l.Generations[0].Manifest
		return nil
	})
	return m, err
}

// ErrOnTrial says that temporary rules stay as they are while a policy is on trial: it would return to another one than it began with.
var ErrOnTrial = errors.New("a policy is on trial: temporary rules stay as they are until `floodwall confirm` or `floodwall rollback`")

// errNoSource says that a program cannot get temporary rules, as what it was compiled from is not kept.
var errNoSource = errors.New("lists of more than 100,000 entries are not kept beside the program, and temporary rules need them: add detect: {baseline: learn} to the policy, and apply it again")

// ChangeTemporary has change say which temporary rules there are, of those that have not ended. It is one transaction: they
// are in force, or all is as it was. Nothing else of what runs changes. An error of change ends it.
func (in Instance) ChangeTemporary(ctx context.Context, change func([]manifest.Temporary) ([]manifest.Temporary, error)) error {
	return in.change(ctx, func(t *transaction) error {
		if t.live.Trial != nil || len(t.live.Generations) != 1 {
			return ErrOnTrial
		}
		list, err := change(manifest.InForce(t.now.Manifest.Temporary, time.Now()))
		if err != nil {
			return err
		}
		return t.putTemporary(context.WithoutCancel(ctx), manifest.Timed(list, time.Now()))
	})
}

// putTemporary puts temporary rules into the place of those that the generation in force has.
func (t *transaction) putTemporary(ctx context.Context, list []manifest.Temporary) error {
	if err := t.now.Foreign(); err != nil {
		return err
	}
	c, err := readSource(t.state, t.now)
	if err != nil {
		return err
	}
	m := *t.now.Manifest
	m.Temporary = list
	if t.now.Program == nil {
		return t.putTemporaryRuleset(ctx, c, &m)
	}
	if c == nil {
		return errNoSource
	}
	if err = t.renew(t.now, c, &m, nil); err != nil {
		return err
	}
	return t.in.cleanTemporary(ctx)
}

// allowlistOf are the sources that temporary rules leave alone.
func allowlistOf(c *Compiled, m *manifest.Manifest) *allowlist.List {
	never := slices.Concat(m.Never, m.Operators)
	if c != nil && c.Program.Never != nil {
		never = slices.AppendSeq(never, c.Program.Never.Prefixes())
	}
	return allowlist.Now(never)
}

// withTemporary adds the temporary rules of a manifest to a program whose rules have these slots. The fresh slots must begin at zero.
func withTemporary(c *Compiled, p *ir.Program, m *manifest.Manifest, slots []uint32, before []*manifest.Manifest) (_ *ir.Program, all, fresh []uint32, err error) {
	p, err = generation.Before(p, m.Temporary, allowlistOf(c, m).Prefixes())
	if err != nil {
		return nil, nil, nil, err
	}
	own, fresh := m.SetTemporary(m.Temporary, p, before)
	return p, append(own, slots...), fresh, nil
}

// putTemporaryRuleset is putTemporary in netfilter. The manifest goes first: mend does the rest when the process dies in between.
func (t *transaction) putTemporaryRuleset(ctx context.Context, c *Compiled, m *manifest.Manifest) error {
	kind := t.now.Manifest.Ruleset().Kind
	tool, err := t.live.Tool(ctx, kind)
	if err != nil {
		return err
	}
	old, err := t.in.settledTemporary(ctx, tool, kind)
	if err != nil {
		return err
	}
	program, err := generation.Before(&ir.Program{}, m.Temporary, nil)
	if err != nil {
		return err
	}
	m.SetTemporary(m.Temporary, program, nil)
	if m.TemporaryRuleset = nil; len(m.Temporary) > 0 {
		if m.TemporaryRuleset, err = t.in.temporaryRuleset(ctx, tool, c, m, old); err != nil {
			return err
		}
	}
	if m.TemporaryRuleset == nil {
		return t.endTemporary(ctx, m)
	}
	if err := t.rewrite(t.now, m); err != nil {
		return err
	}
	if err := exceptRemains(tool.Load(ctx, m.TemporaryRuleset, append(old, "")[0], netfilter.Loading{})); err != nil {
		return errors.Join(err, t.rewrite(t.now, t.now.Manifest))
	}
	return t.in.cleanTemporary(ctx, m.TemporaryRuleset.Name)
}

// endTemporary removes the last temporary rules. The manifest keeps the name of their ruleset until that is gone.
func (t *transaction) endTemporary(ctx context.Context, m *manifest.Manifest) error {
	if t.now.Manifest.TemporaryRuleset != nil {
		ends := *m
		ends.TemporaryRuleset = t.now.Manifest.TemporaryRuleset
		if err := t.rewrite(t.now, &ends); err != nil {
			return err
		}
	}
	if err := t.in.cleanTemporary(ctx); err != nil {
		return err
	}
	return t.rewrite(t.now, m)
}

// settledTemporary names the rulesets of temporary rules that decide for good. Others it removes: a command has left them that died. When none
// decides for good, one stays that such a command was about to replace, and decides again.
func (in Instance) settledTemporary(ctx context.Context, t netfilter.Tool, kind netfilter.Kind) (settled []string, err error) {
	names, err := t.Leftovers(ctx, in.temporaryPrefix(kind))
	if err != nil {
		return nil, err
	}
	var replaced []string
	for _, name := range names {
		_, state, err := t.Trial(ctx, name)
		if err != nil {
			return nil, err
		}
		switch state {
		case netfilter.Settled:
			settled = append(settled, name)
		case netfilter.Aside, netfilter.Returned:
			replaced = append(replaced, name)
		}
	}
	if len(settled) == len(names) {
		return settled, nil
	}
	if len(settled) == 0 {
		settled = replaced
	}
	_, err = t.Clean(ctx, in.temporaryPrefix(kind), settled...)
	return settled, err
}

// temporaryRuleset is the ruleset of temporary rules, with another name than old ones have, whose counts go on.
func (in Instance) temporaryRuleset(ctx context.Context, t netfilter.Tool, c *Compiled, m *manifest.Manifest, old []string) (*netfilter.Ruleset, error) {
	name, counted := in.temporaryPrefix(netfilter.KindNft)+"1", map[string]netfilter.Count{}
	if len(old) > 0 {
		if strings.HasSuffix(old[0], "1") {
			name = in.temporaryPrefix(netfilter.KindNft) + "2"
		}
		_, err := t.Clean(ctx, in.temporaryPrefix(m.Ruleset().Kind), old[0]) // what else a process has left that died
		if err == nil {
			counted, err = t.Counters(ctx, old[0])
		}
		if err != nil {
			return nil, err
		}
	}
	return generation.Ruleset(name, m.Target, m.Devices, m.Temporary, allowlistOf(c, m).Prefixes(), counted)
}

// rewrite replaces the manifest of a generation in netfilter.
func (t *transaction) rewrite(g *generation.Generation, m *manifest.Manifest) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return t.state.SetManifest(g.Number, text)
}

// temporaryPrefix begins the names of rulesets of temporary rules. A change of the policy removes those with the prefix of policies.
func (in Instance) temporaryPrefix(k netfilter.Kind) string {
	return strings.TrimSuffix(in.prefixOf(k), "-") + map[netfilter.Kind]string{netfilter.KindNft: "t-", netfilter.KindIptables: "T-"}[k]
}

// cleanTemporary removes rulesets of temporary rules, of this target and of one before, but those to keep.
func (in Instance) cleanTemporary(ctx context.Context, keep ...string) (err error) {
	for _, k := range []netfilter.Kind{netfilter.KindNft, netfilter.KindIptables} {
		err = errors.Join(err, cleanOf(ctx, k, in.temporaryPrefix(netfilter.KindNft), in.temporaryPrefix(k), keep))
	}
	return err
}

// mendTemporary puts the ruleset of temporary rules back that a command has not loaded which died, or that somebody has removed. Where a mend
// restores nothing else, it removes what is left of rules that have ended, and has the others end in time after a step of the machine's clock.
func (t *transaction) mendTemporary(ctx context.Context) error {
	m := t.now.Manifest
	list := manifest.InForce(m.Temporary, time.Now())
	if !t.restore && len(t.live.Generations) == 1 && !slices.EqualFunc(list, m.Temporary, manifest.Temporary.Equal) {
		return t.putTemporary(ctx, list)
	}
	if t.now.Program != nil || len(list) == 0 && m.TemporaryRuleset == nil {
		return nil
	}
	if p := m.TemporaryRuleset; p != nil && len(list) > 0 {
		tool, err := t.live.Tool(ctx, p.Kind)
		if err != nil {
			return err
		}
		if _, state, err := tool.Trial(ctx, p.Name); err != nil || state == netfilter.Settled {
			return err
		}
	}
	return t.putTemporary(ctx, list)
}
