// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// State says whether a generation decides at present, and why.
type State int

// The states of a generation.
const (
	Absent   State = iota // the kernel has no generation with this name
	Settled               // it decides, until it is replaced
	OnTrial               // it decides, and stops deciding when its trial ends
	Inert                 // it does not decide: its trial ended unconfirmed, or its load was interrupted
	Aside                 // it does not decide during the trial of its successor
	Returned              // it decides again, because the trial of its successor has ended; its guard is still there
)

var stateNames = [...]string{"absent", "settled", "on trial", "inert", "aside", "returned"}

// String is the state's name.
func (s State) String() string { return stateNames[s] }

// Decides reports whether the generation decides about packets.
func (s State) Decides() bool { return s == Settled || s == OnTrial || s == Returned }

const (
	// MinTrial is the shortest possible trial. In the last second of each trial the old generation also decides.
	MinTrial = 2 * time.Second
	// overlap is the last part of a trial. During it the old generation also decides.
	overlap = time.Second
	// handover is the longest time for which both generations decide when the process dies between the steps of a change without a trial.
	handover = 10 * time.Second
)

// Count is the value of a counter. Bytes counts from the start of the network header.
type Count struct{ Packets, Bytes uint64 }

// StateError says that the state of a generation does not allow the request.
type StateError struct {
	Name   string // the generation
	State  State
	Remedy string
}

func (e *StateError) Error() string { return fmt.Sprintf("generation %s is %s", e.Name, e.State) }

// Hint is the remedy.
func (e *StateError) Hint() string { return e.Remedy }

// UnlessAbsent returns nil for a StateError with the state Absent, which means that another tool has removed the generation. It returns any other
// error unchanged.
func UnlessAbsent(err error) error {
	var state *StateError
	if errors.As(err, &state) && state.State == Absent {
		return nil
	}
	return err
}

// ExpiredError says that a trial ended before it was confirmed. Nothing was changed.
type ExpiredError struct{ Name string }

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("the trial of generation %s has ended unconfirmed", e.Name)
}

// Hint is the remedy.
func (e *ExpiredError) Hint() string {
	return "the previous policy decides again; apply the new one once more, with more time to confirm"
}

// RemainsError says that a change is complete and the new generation decides, but parts of the old generation could not be removed. Clean removes
// them.
type RemainsError struct {
	Name string // the old generation
	Err  error
}

func (e *RemainsError) Error() string {
	return fmt.Sprintf("removing generation %s: %v", e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *RemainsError) Unwrap() error { return e.Err }

// checkTrial returns an error for an invalid trial time. 0 means no trial.
func checkTrial(trial time.Duration) error {
	if trial != 0 && trial < MinTrial {
		return fmt.Errorf("a trial of %v is shorter than %v", trial, MinTrial)
	}
	return nil
}

// succeed starts a trial of a generation, or starts its time again. It starts the timer for the return of the old generation before it sets that
// generation aside, and before it starts the timer of the new generation. So one of the two always decides, however long a step takes.
func succeed(ctx context.Context, t interface {
	SetReturn(ctx context.Context, name, old string, trial time.Duration) error
	Renew(ctx context.Context, name string, left time.Duration) error
	SetAside(ctx context.Context, name, old string) error
}, name, old string, trial time.Duration) error {
	if old == "" {
		return t.Renew(ctx, name, trial)
	}
	if err := t.SetReturn(ctx, name, old, trial); err != nil {
		return err
	}
	if err := t.Renew(ctx, name, trial); err != nil {
		return err
	}
	return t.SetAside(ctx, name, old)
}

// replaceable checks that the new generation does not exist yet, and that the old one is settled. old is "" for none.
func replaceable(ctx context.Context, target interface {
	Trial(context.Context, string) (time.Duration, State, error)
}, name, old string) error {
	for _, need := range []struct {
		name   string
		state  State
		remedy string
	}{
		{name, Absent, "a generation of this name is there: remove it first"},
		{old, Settled, "it can be replaced when it decides, with no trial: confirm, roll back or clean first"},
	} {
		if need.name == "" {
			continue
		}
		_, state, err := target.Trial(ctx, need.name)
		if err != nil {
			return err
		}
		if state != need.state {
			return &StateError{Name: need.name, State: state, Remedy: need.remedy}
		}
	}
	return nil
}

// undo calls clean, also when ctx has ended, and joins its error with err.
func undo(ctx context.Context, err error, clean func(context.Context) error) error {
	if failed := clean(context.WithoutCancel(ctx)); failed != nil {
		return errors.Join(err, fmt.Errorf("undoing the change: %w", failed))
	}
	return err
}

// numbered returns the names that consist of prefix and a number, except those in keep.
func numbered(names []string, prefix string, keep []string) (found []string) {
	for _, name := range names {
		number, ok := strings.CutPrefix(name, prefix)
		if ok && number != "" && strings.Trim(number, "0123456789") == "" && !slices.Contains(keep, name) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
