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
	Script string   // for nft -f: `table inet NAME { … }`, perhaps `table netdev NAME { … }`, and nothing about other tables
	Chains []string // the base chains of the former

	// Fill is what sets hold beside that from the first packet on, by their names. Of elements that overlap, the one
	// with the larger prefix is entered.
	Fill map[string][]Element

	// Beside leaves the old table deciding too, until SetAside or Confirm: when another place in the kernel, such as XDP,
	// is to change in between. It takes a trial.
	Beside bool
}

// Load puts a table into the kernel, in the place of another one unless replaces is "", for good or, when trial is not
// 0, until trial has passed since it began to decide. If anything is wrong, the kernel is as before. See the package's
// comment for the steps, and for what becomes of them when the process is killed.
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

// inert is a script that makes the generation, and has it decide nothing yet.
func (t *Table) inert() []string {
	lines := append([]string{"create table inet " + t.Name, t.Script}, guard(t.Name, trialSet, "!=", t.Chains)...)
	if !t.hasTagged() {
		return lines
	}
	var chains []string
	if asked, err := readTable(t.Script, t.Name, false); err == nil { // loadable has read it without an error
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

// loadable checks what nft itself would not object to.
func (n *Nft) loadable(ctx context.Context, t Table, replaces string, trial time.Duration) error {
	if err := checkTrial(trial); err != nil {
		return err
	}
	if _, err := readTable(t.Script, t.Name, true); err != nil {
		return err
	}
	return replaceable(ctx, n, t.Name, replaces)
}

// change lets an inert table decide in the place of another. It asks all it has to know before the first step, so that
// both decide for a few milliseconds only.
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

// SetReturn says when the old table, which table was loaded beside, decides again once SetAside has been called: in the last
// second of a trial of this length from now on. Until then it decides.
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
		return fmt.Errorf("table %s in place of %s: %w", table, old, err)
	}
	return nil
}

// SetAside takes the decision from the old table until the time that SetReturn has set.
func (n *Nft) SetAside(ctx context.Context, table, old string) error {
	lines, err := asking(old, supersededSet)
	if err == nil {
		err = n.script(ctx, lines...)
	}
	if err != nil {
		return fmt.Errorf("table %s in place of %s: %w", table, old, err)
	}
	return nil
}

// Renew has a table that is on trial decide until left has passed from now on.
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

// confirmation is a script that makes a table decide for good, and removes the old one.
func (n *Nft) confirmation(ctx context.Context, table, old string) ([]string, error) {
	lines, err := unguard(table, trialSet)
	if err == nil && old != "" {
		lines = append(lines, removal(old)...)
	}
	return lines, err
}

// Keep makes a table that is on trial decide for good, and leaves the old one as it is: when another place in the kernel is
// to be confirmed before Finish. When the trial has ended already, it changes nothing and the error is an *ExpiredError.
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

// Finish removes the old table, unless "", beside one that was kept.
func (n *Nft) Finish(ctx context.Context, _, old string) error {
	if old == "" {
		return nil
	}
	return n.Remove(ctx, old)
}

// Confirm ends a trial: the table decides for good, and the old one, unless "", is removed, in one transaction. When
// the trial has ended already, it changes nothing and the error is an *ExpiredError. It looks at the clock some
// milliseconds before the transaction; a trial that ends in between is confirmed.
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

// Rollback ends a trial, or tidies up after one that has ended: the old table, unless "", decides, and the other one is
// removed. It is no error when the other one is gone already.
func (n *Nft) Rollback(ctx context.Context, table, old string) error {
	if err := n.release(ctx, old); err != nil {
		return err
	}
	return n.Remove(ctx, table)
}

// Release lets the old table decide beside the one on trial: when another place in the kernel is to go back before
// Rollback.
func (n *Nft) Release(ctx context.Context, _, old string) error { return n.release(ctx, old) }

// release lets a table decide that was set aside.
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

// Leftovers lists the tables whose names are prefix and a number, except those to keep: what a process left that was
// killed.
func (n *Nft) Leftovers(ctx context.Context, prefix string, keep ...string) ([]string, error) {
	names, err := n.Tables(ctx, prefix)
	return numbered(names, prefix, keep), err
}

// Clean removes all leftovers, and tells which. A table to keep that was set aside for one of them decides again.
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

// free removes what keeps a table aside, unless one that is on trial is kept too.
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
