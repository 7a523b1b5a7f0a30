// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Table is a generation for nftables.
type Table struct {
	Name   string
	Script string   // for nft -f: `table inet NAME { … }`, possibly `table netdev NAME { … }`, and no statement about other tables
	Chains []string // the base chains of the table inet

	// Fill has additional initial content of sets, by the name of the set. If elements overlap, only the one with the larger prefix is added.
	Fill map[string][]Element

	// Beside makes the old table also decide until SetAside or Confirm. It is used when XDP, or another part of the kernel, must change in between.
	// It requires a trial.
	Beside bool
}

// Load loads a table into the kernel. It replaces the table replaces, or none if that is "". If trial is 0, the new table stays permanently.
// Otherwise it stays for the time trial, from the moment when it starts to decide. If Load fails, the kernel is unchanged. The package comment
// describes the steps, and the effect if the process is killed between them.
func (n *Nft) Load(ctx context.Context, t Table, replaces string, trial time.Duration) error {
	if err := n.loadable(ctx, t, replaces, trial); err != nil {
		return fmt.Errorf("loading table %s: %w", t.Name, err)
	}
	err := n.script(ctx, t.inert()...)
	if err == nil {
		err = n.Verify(ctx, t)
	}
	if err == nil {
		err = n.fillSets(ctx, t)
	}
	if err == nil {
		err = n.change(ctx, t, replaces, trial)
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("loading table %s: %w", t.Name, err)
	return undo(ctx, err, func(ctx context.Context) error {
		if _, state, err := n.Trial(ctx, replaces); replaces != "" && (err != nil || state == Absent) {
			return fmt.Errorf("table %s is not removed, as table %s may be gone: %w", t.Name, replaces, err)
		}
		return n.Rollback(ctx, t.Name, replaces)
	})
}

// inert returns a script that creates the generation with a guard, so that it does not decide yet.
func (t *Table) inert() []string {
	lines := append([]string{"create table inet " + t.Name, t.Script}, guard(t.Name, trialSet, "!=", t.Chains)...)
	if !t.hasTagged() {
		return lines
	}
	var chains []string
	if asked, err := readTable(t.Script, t.Name); err == nil { // loadable has already parsed the script without an error
		for name := range asked.chains {
			if chain, ok := strings.CutPrefix(name, ofTagged); ok {
				chains = append(chains, chain)
			}
		}
	}
	return append(lines, guardTagged(t.Name, trialSet, "!=", chains)...)
}

func (t *Table) hasTagged() bool { return hasTagged(t.Script, t.Name) }

func (n *Nft) fillSets(ctx context.Context, t Table) error {
	for set, elements := range t.Fill {
		var overlap *OverlapError
		if err := n.Insert(ctx, t.Name, set, elements); err != nil && !errors.As(err, &overlap) {
			return err
		}
	}
	return nil
}

// loadable makes checks that nft does not make.
func (n *Nft) loadable(ctx context.Context, t Table, replaces string, trial time.Duration) error {
	if err := checkTrial(trial); err != nil {
		return err
	}
	if _, err := readTable(t.Script, t.Name); err != nil {
		return err
	}
	return replaceable(ctx, n, t.Name, replaces)
}

// change makes an inert table decide instead of the old one. It reads all the data that it needs before the first step, so that both tables decide
// only for a few milliseconds.
func (n *Nft) change(ctx context.Context, t Table, old string, trial time.Duration) error {
	if t.Beside {
		return n.script(ctx, enter(t.Name, trialSet, trial, t.hasTagged()))
	}
	if trial == 0 {
		last, err := n.confirmation(ctx, t.Name, old)
		if err == nil {
			err = n.script(ctx, enter(t.Name, trialSet, handover, t.hasTagged()))
		}
		if err == nil {
			err = n.script(ctx, last...)
		}
		return err
	}
	return succeed(ctx, n, t.Name, old, trial)
}

// SetReturn sets the time at which the old table decides again after SetAside: the last second of a trial of the given length that starts now. table
// was loaded beside old. Until SetAside the old table decides, too.
func (n *Nft) SetReturn(ctx context.Context, table, old string, trial time.Duration) error {
	err := checkTrial(trial)
	var tagged bool
	if err == nil {
		tagged, err = isTagged(old)
	}
	var lines []string
	if err == nil {
		lines, err = unask(old, supersededSet, "flush")
	}
	if err == nil {
		err = n.script(ctx, append(lines, enter(old, supersededSet, trial-overlap, tagged))...)
	}
	if err != nil {
		return fmt.Errorf("replacing table %[2]s by %[1]s: %[3]w", table, old, err)
	}
	return nil
}

// SetAside stops the old table from deciding until the time that SetReturn has set.
func (n *Nft) SetAside(ctx context.Context, table, old string) error {
	lines, err := asking(old, supersededSet)
	if err == nil {
		err = n.script(ctx, lines...)
	}
	if err != nil {
		return fmt.Errorf("replacing table %[2]s by %[1]s: %[3]w", table, old, err)
	}
	return nil
}

// Renew makes a table on trial decide for the time left, from now on.
func (n *Nft) Renew(ctx context.Context, table string, left time.Duration) error {
	lines, err := renewal(table, trialSet, left)
	if err == nil {
		err = n.script(ctx, lines...)
	}
	if err != nil {
		return fmt.Errorf("trial of table %s: %w", table, err)
	}
	return nil
}

// confirmation returns a script that makes a table decide permanently, and removes the old one.
func (n *Nft) confirmation(ctx context.Context, table, old string) ([]string, error) {
	lines, err := unguard(table, trialSet)
	if err == nil && old != "" {
		lines = append(lines, removal(old)...)
	}
	return lines, err
}

// Keep makes a table on trial decide permanently, and does not change the old one. It is used when XDP, or another part of the kernel, must be
// confirmed before Finish. If the trial has already ended, Keep changes nothing and returns an *ExpiredError.
func (n *Nft) Keep(ctx context.Context, table string) error {
	_, state, err := n.Trial(ctx, table)
	switch {
	case err != nil:
		return fmt.Errorf("keeping table %s: %w", table, err)
	case state == Settled:
		return nil
	case state == Inert:
		return &ExpiredError{Name: table}
	case state != OnTrial:
		return fmt.Errorf("keeping table %s: %w", table, &StateError{Name: table, State: state})
	}
	lines, err := unguard(table, trialSet)
	if err == nil {
		err = n.script(ctx, lines...)
	}
	if err != nil {
		return fmt.Errorf("keeping table %s: %w", table, err)
	}
	return nil
}

// Finish removes the old table after Keep. old is "" for none.
func (n *Nft) Finish(ctx context.Context, _, old string) error {
	if old == "" {
		return nil
	}
	return n.Remove(ctx, old)
}

// Confirm ends a trial: in one transaction, the table decides permanently and the old one is removed. old is "" for none. If the trial has already
// ended, Confirm changes nothing and returns an *ExpiredError. It reads the clock some milliseconds before the transaction. A trial that ends in
// between is still confirmed.
func (n *Nft) Confirm(ctx context.Context, table, old string) error {
	_, state, err := n.Trial(ctx, table)
	switch {
	case err != nil:
		return fmt.Errorf("confirming table %s: %w", table, err)
	case state == Inert:
		return &ExpiredError{Name: table}
	case state != OnTrial:
		return fmt.Errorf("confirming table %s: %w", table, &StateError{Name: table, State: state})
	}
	lines, err := n.confirmation(ctx, table, old)
	if err == nil {
		err = n.script(ctx, lines...)
	}
	if err != nil {
		return fmt.Errorf("confirming table %s: %w", table, err)
	}
	return nil
}

// Rollback ends a trial, or cleans up after a trial that has ended. The old table decides again, and the new one is removed. old is "" for none. It
// is not an error if the new table does not exist.
func (n *Nft) Rollback(ctx context.Context, table, old string) error {
	if err := n.release(ctx, old); err != nil {
		return err
	}
	return n.Remove(ctx, table)
}

// Release makes the old table decide in addition to the one on trial. It is used when XDP, or another part of the kernel, must return before
// Rollback.
func (n *Nft) Release(ctx context.Context, _, old string) error { return n.release(ctx, old) }

// release makes a table that was set aside decide again.
func (n *Nft) release(ctx context.Context, table string) error {
	if table == "" {
		return nil
	}
	lines, err := unguard(table, supersededSet)
	if err == nil && lines != nil {
		err = n.script(ctx, lines...)
	}
	if err != nil {
		return fmt.Errorf("going back to table %s: %w", table, err)
	}
	return nil
}

// Leftovers lists the tables whose names consist of prefix and a number, except those in keep. Processes that were killed have left them.
func (n *Nft) Leftovers(ctx context.Context, prefix string, keep ...string) ([]string, error) {
	names, err := n.Tables(ctx, prefix)
	return numbered(names, prefix, keep), err
}

// Clean removes all leftovers, and returns their names. If a table in keep was set aside for a leftover, it decides again.
func (n *Nft) Clean(ctx context.Context, prefix string, keep ...string) ([]string, error) {
	found, err := n.Leftovers(ctx, prefix, keep...)
	if err != nil {
		return nil, err
	}
	if err := n.free(ctx, keep); err != nil {
		return nil, err
	}
	for _, name := range found {
		if err := n.Remove(ctx, name); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// free removes the guards that prevent tables in keep from deciding. If a table in keep is on trial, free does nothing.
func (n *Nft) free(ctx context.Context, keep []string) error {
	var aside []string
	for _, name := range keep {
		_, state, err := n.Trial(ctx, name)
		if err != nil {
			return err
		}
		switch state {
		case OnTrial:
			return nil
		case Aside, Returned:
			aside = append(aside, name)
		}
	}
	for _, name := range aside {
		if err := n.release(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
