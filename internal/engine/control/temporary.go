// SPDX-License-Identifier: Apache-2.0

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

// Manifest returns the manifest of the running policy. It returns datapath.ErrNotLoaded when no policy runs.
func (in Instance) Manifest(ctx context.Context) (m *manifest.Manifest, err error) {
	err = in.reading(ctx, func(l *generation.Live) error {
		m = l.Generations[0].Manifest
		return nil
	})
	return m, err
}

// ErrOnTrial says that temporary rules cannot change during a trial: if the previous policy returned, it would have other temporary rules than
// before.
var ErrOnTrial = errors.New("a policy is on trial: temporary rules stay as they are until `floodwall confirm` or `floodwall rollback`")

// errNoSource says that a program cannot get temporary rules because its source is not stored.
var errNoSource = errors.New("lists of more than 100,000 entries are not kept beside the program, and temporary rules need them: add detect: {baseline: learn} to the policy, and apply it again")

// ChangeTemporary calls change with the temporary rules that have not ended, and puts the returned rules in force. It is one transaction, which is
// done completely or not at all. Nothing else of the running policy changes. If change returns an error, nothing is done.
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

// putTemporary replaces the temporary rules of the generation in force.
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

// allowlistOf returns the sources whose packets temporary rules never drop.
func allowlistOf(c *Compiled, m *manifest.Manifest) *allowlist.List {
	never := slices.Concat(m.Never, m.Operators)
	if c != nil && c.Program.Never != nil {
		never = slices.AppendSeq(never, c.Program.Never.Prefixes())
	}
	return allowlist.Now(never)
}

// withTemporary adds the temporary rules of a manifest to a program. slots are the counter slots of the program's own rules. `all` are the slots of all
// rules, and fresh the slots that must start at zero.
func withTemporary(c *Compiled, p *ir.Program, m *manifest.Manifest, slots []uint32, before []*manifest.Manifest) (_ *ir.Program, all, fresh []uint32, err error) {
	p, err = generation.Before(p, m.Temporary, allowlistOf(c, m).Prefixes())
	if err != nil {
		return nil, nil, nil, err
	}
	own, fresh := m.SetTemporary(m.Temporary, p, before)
	return p, append(own, slots...), fresh, nil
}

// putTemporaryRuleset is putTemporary for netfilter. It writes the manifest first. If the process dies after that, mend completes the change.
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

// endTemporary removes the last temporary rules. Until their ruleset is removed, the manifest keeps the name of the ruleset.
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

// settledTemporary returns the names of the rulesets of temporary rules that decide permanently. It removes the other ones, which a command that died
// has left. If no ruleset decides permanently, settledTemporary keeps one that such a command was about to replace, and makes it decide again.
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

// temporaryRuleset compiles the ruleset of temporary rules. Its name differs from the old rulesets' names. Its counters continue their counts.
func (in Instance) temporaryRuleset(ctx context.Context, t netfilter.Tool, c *Compiled, m *manifest.Manifest, old []string) (*netfilter.Ruleset, error) {
	name, counted := in.temporaryPrefix(netfilter.KindNft)+"1", map[string]netfilter.Count{}
	if len(old) > 0 {
		if strings.HasSuffix(old[0], "1") {
			name = in.temporaryPrefix(netfilter.KindNft) + "2"
		}
		_, err := t.Clean(ctx, in.temporaryPrefix(m.Ruleset().Kind), old[0]) // remove the other remains of a process that died
		if err == nil {
			counted, err = t.Counters(ctx, old[0])
		}
		if err != nil {
			return nil, err
		}
	}
	return generation.Ruleset(name, m.Target, m.Devices, m.Temporary, allowlistOf(c, m).Prefixes(), counted)
}

// rewrite replaces the stored manifest of a generation without XDP.
func (t *transaction) rewrite(g *generation.Generation, m *manifest.Manifest) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return t.state.SetManifest(g.Number, text)
}

// temporaryPrefix returns the prefix of the names of rulesets of temporary rules. It differs from the prefix of the policy's rulesets, because a
// change removes all rulesets with that prefix.
func (in Instance) temporaryPrefix(k netfilter.Kind) string {
	return strings.TrimSuffix(in.prefixOf(k), "-") + map[netfilter.Kind]string{netfilter.KindNft: "t-", netfilter.KindIptables: "T-"}[k]
}

// cleanTemporary removes rulesets of temporary rules of all kinds, except those in keep.
func (in Instance) cleanTemporary(ctx context.Context, keep ...string) (err error) {
	for _, k := range []netfilter.Kind{netfilter.KindNft, netfilter.KindIptables} {
		err = errors.Join(err, cleanOf(ctx, k, in.temporaryPrefix(netfilter.KindNft), in.temporaryPrefix(k), keep))
	}
	return err
}

// mendTemporary restores the ruleset of temporary rules if a command died before loading it, or if another tool has removed it. If restore is not
// set, it also removes rules that have ended, and corrects the ends of the other rules after the machine's clock was set.
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
