// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rules is a generation for iptables and ipset.
type Rules struct {
	// Name is the name of the generation's chains, or the start of their names before a "-", such as FLOODWALL-7 and FLOODWALL-7-raw. The names of
	// its sets start with Name in lower case, such as floodwall-7-bans.
	Name   string
	IPSet  string // script for ipset restore, which creates and fills the sets
	V4, V6 string // scripts for iptables-restore --noflush, with chains of raw and filter and without hooks; "" for none
	Hooks  []Hook // in their order; a family gets the hooks whose target chain is in its script

	// Fill has additional initial content of sets, by the name of the set.
	Fill map[string][]Element

	Beside bool // see Table.Beside
}

func (r *Rules) script(f *family) string {
	if f.version == "6" {
		return r.V6
	}
	return r.V4
}

// Load loads a generation into the kernel. It replaces the generation replaces, or none if that is "". If trial is 0, the new generation stays
// permanently. Otherwise it stays for the time trial, in whole seconds, from the moment when it starts to decide. If Load fails, the kernel is
// unchanged, except after a *RemainsError. The package comment describes the steps, and the effect if the process is killed between them.
func (x *Iptables) Load(ctx context.Context, r Rules, replaces string, trial time.Duration) error {
	if err := x.loadable(ctx, r, replaces, trial); err != nil {
		return fmt.Errorf("loading %s: %w", r.Name, err)
	}
	err := x.enter(ctx, r, replaces)
	if err == nil {
		err = x.change(ctx, r.Name, replaces, trial, r.Beside)
	}
	var remains *RemainsError
	if err == nil || errors.As(err, &remains) {
		return err
	}
	err = fmt.Errorf("loading %s: %w", r.Name, err)
	return undo(ctx, err, func(ctx context.Context) error { return x.Rollback(ctx, r.Name, replaces) })
}

// loadable makes checks that the tools do not make.
func (x *Iptables) loadable(ctx context.Context, r Rules, replaces string, trial time.Duration) error {
	if err := checkTrial(trial); err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return err
	}
	return replaceable(ctx, x, r.Name, replaces)
}

// check returns an error if the scripts contain chains or sets that do not belong to the generation.
func (r *Rules) check() error {
	for _, script := range []string{r.V4, r.V6} {
		tables, err := readSaved(script)
		if err != nil {
			return err
		}
		for _, t := range tables {
			for _, c := range t.chains {
				if !ownChain(r.Name, c.name) || c.built {
					return fmt.Errorf("the script has the chain %s, which is not its own", c.name)
				}
			}
			for _, rule := range t.rules {
				if !ownChain(r.Name, rule.chain) {
					return fmt.Errorf("the script has a rule in the chain %s, which is not its own", rule.chain)
				}
			}
		}
	}
	for line := range strings.Lines(r.IPSet) {
		list := append(strings.Fields(line), "", "")
		own := strings.HasPrefix(list[1], setsPrefix(r.Name)) && (list[0] == "create" || list[0] == "add")
		if !own && list[0] != "" && list[0][0] != '#' {
			return fmt.Errorf("the script has the line %q, which is not about its own sets", strings.TrimSpace(line))
		}
	}
	return nil
}

// enter loads a generation into the kernel without letting it decide, and verifies it.
func (x *Iptables) enter(ctx context.Context, r Rules, replaces string) error {
	lines := []string{strings.TrimSpace(r.IPSet)}
	for _, f := range x.families {
		for _, guard := range []string{iptablesTrial, iptablesSuperseded, iptablesReturn} {
			lines = append(lines, "create "+guardSet(r.Name, guard, f)+" hash:net family "+f.inet+" timeout 0")
		}
	}
	if err := x.restoreSets(ctx, lines...); err != nil {
		return err
	}
	for _, f := range x.families {
		if err := f.apply(ctx, r.script(f)); err != nil {
			return fmt.Errorf("chains of IPv%s: %w", f.version, err)
		}
	}
	if err := x.Verify(ctx, r); err != nil {
		return err
	}
	for set, elements := range r.Fill {
		if err := x.Insert(ctx, set, elements); err != nil {
			return err
		}
	}
	for _, f := range x.families {
		if err := f.hook(ctx, r, replaces); err != nil {
			return err
		}
	}
	return nil
}

// hook adds the hooks of a new generation, and adds a guard to the hooks of the old one.
func (f *family) hook(ctx context.Context, r Rules, replaces string) error {
	tables, err := readSaved(r.script(f))
	if err != nil {
		return err
	}
	return f.rehook(ctx, []string{r.Name, replaces}, func(table string, now []iptablesRule) (want []iptablesRule) {
		for _, h := range r.Hooks {
			if h.Table == table && slices.ContainsFunc(tables, func(t iptablesSaved) bool { return t.has(table, h.Target) }) {
				hook := iptablesRule{chain: h.Chain, spec: h.spec()}
				want = append(want, guarded(hook, "", guardSet(r.Name, iptablesTrial, f)))
			}
		}
		for _, old := range of(replaces, now) {
			want = append(want, guarded(old, "! ", guardSet(r.Name, iptablesSuperseded, f)))
		}
		return want
	})
}

// has reports whether the table has a chain.
func (s *iptablesSaved) has(table, chain string) bool {
	return s.table == table && slices.ContainsFunc(s.chains, func(c iptablesChain) bool { return c.name == chain })
}

// hold puts all addresses into the sets of the given guards, in each family. The timeout has a resolution of seconds; 0 means no timeout.
func (x *Iptables) hold(ctx context.Context, name string, timeout time.Duration, guards ...string) error {
	seconds := strconv.Itoa(int((timeout + time.Second - 1) / time.Second))
	var lines []string
	for _, guard := range guards {
		for _, f := range x.families {
			for _, half := range f.halves {
				lines = append(lines, "add "+guardSet(name, guard, f)+" "+half+" timeout "+seconds)
			}
		}
	}
	if err := x.restoreSets(ctx, lines...); err != nil {
		return fmt.Errorf("guards of %s: %w", name, err)
	}
	return nil
}

// change makes an inert generation decide instead of the old one.
func (x *Iptables) change(ctx context.Context, name, old string, trial time.Duration, beside bool) error {
	switch {
	case beside:
		return x.hold(ctx, name, trial, iptablesTrial)
	case trial == 0:
		if err := x.hold(ctx, name, handover, iptablesTrial); err != nil {
			return err
		}
		return x.Confirm(ctx, name, old)
	}
	return succeed(ctx, x, name, old, trial)
}

// SetReturn sets the time at which the old generation decides again after SetAside: the last second of a trial of the given length, in whole seconds,
// that starts now. Until SetAside both generations decide.
func (x *Iptables) SetReturn(ctx context.Context, name, old string, trial time.Duration) error {
	err := checkTrial(trial)
	if err == nil {
		err = x.hold(ctx, name, (trial - overlap).Truncate(time.Second), iptablesReturn)
	}
	if err != nil {
		return fmt.Errorf("replacing %[2]s by %[1]s: %[3]w", name, old, err)
	}
	return nil
}

// SetAside stops the old generation from deciding until the time that SetReturn has set.
func (x *Iptables) SetAside(ctx context.Context, name, old string) error {
	for _, f := range x.families {
		if err := x.swap(ctx, guardSet(name, iptablesReturn, f), guardSet(name, iptablesSuperseded, f)); err != nil {
			return fmt.Errorf("replacing %[2]s by %[1]s: %[3]w", name, old, err)
		}
	}
	return nil
}

// Renew makes a generation on trial decide for the time left, in whole seconds, from now on.
func (x *Iptables) Renew(ctx context.Context, name string, left time.Duration) error {
	return x.hold(ctx, name, left, iptablesTrial)
}

// Confirm ends a trial: the generation decides permanently, and the old one is removed. old is "" for none. If the trial has already ended, Confirm
// changes nothing and returns an *ExpiredError. After any other error the generation may be confirmed. Trial then says that it is settled, and
// Confirm may be called again to complete the rest.
func (x *Iptables) Confirm(ctx context.Context, name, old string) error {
	_, state, err := x.Trial(ctx, name)
	switch {
	case err != nil:
		return fmt.Errorf("confirming %s: %w", name, err)
	case state == Inert:
		return &ExpiredError{Name: name}
	case state != OnTrial && state != Settled:
		return fmt.Errorf("confirming %s: %w", name, &StateError{Name: name, State: state})
	}
	err = x.seal(ctx, name, state)
	if err == nil {
		err = x.bare(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("confirming %s: %w", name, err)
	}
	if err := errors.Join(x.removeOld(ctx, old), x.dropGuards(ctx, name)); err != nil {
		return &RemainsError{Name: old, Err: err}
	}
	return nil
}

// Keep makes a generation on trial decide permanently, and does not change the old one. It is used when XDP, or another part of the kernel, must be
// confirmed before Finish. If the trial has already ended, Keep changes nothing and returns an *ExpiredError.
func (x *Iptables) Keep(ctx context.Context, name string) error {
	_, state, err := x.Trial(ctx, name)
	switch {
	case err != nil:
		return fmt.Errorf("keeping %s: %w", name, err)
	case state == Settled:
		return nil
	case state == Inert:
		return &ExpiredError{Name: name}
	case state != OnTrial:
		return fmt.Errorf("keeping %s: %w", name, &StateError{Name: name, State: state})
	}
	return x.hold(ctx, name, 0, iptablesTrial)
}

// Finish completes Keep: it removes the guards of the new generation, and removes the old one. old is "" for none.
func (x *Iptables) Finish(ctx context.Context, name, old string) error {
	sets, err := x.ownSets(ctx, name)
	if err == nil && old != "" && slices.Contains(sets, guardSet(name, iptablesSuperseded, x.families[0])) {
		err = x.hold(ctx, name, 0, iptablesSuperseded)
	}
	if err != nil {
		return fmt.Errorf("finishing %s: %w", name, err)
	}
	return x.Confirm(ctx, name, old)
}

// seal makes the present state of the guards permanent.
func (x *Iptables) seal(ctx context.Context, name string, state State) error {
	if state == Settled {
		return nil
	}
	return x.hold(ctx, name, 0, iptablesTrial, iptablesSuperseded)
}

// bare removes the guards from the hooks of a generation, in all families.
func (x *Iptables) bare(ctx context.Context, name string) error {
	for _, f := range x.families {
		if err := f.bare(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (x *Iptables) removeOld(ctx context.Context, old string) error {
	if old == "" {
		return nil
	}
	return x.Remove(ctx, old)
}
