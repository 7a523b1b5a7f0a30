package netfilter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is what a generation does at present.
type State int

// The states of a generation.
const (
	Absent   State = iota // the kernel has no generation of the name
	Settled               // it decides, until it is replaced
	OnTrial               // it decides, and stops when its trial ends
	Inert                 // it decides nothing: its trial ended unconfirmed, or its load was cut off
	Aside                 // it decides nothing while its successor is on trial
	Returned              // it decides again, as the trial of its successor ended; what kept it aside is still there
)

var stateNames = [...]string{"absent", "settled", "on trial", "inert", "aside", "returned"}

// String is the state's name.
func (s State) String() string { return stateNames[s] }

// Decides reports whether packets are subject to the generation.
func (s State) Decides() bool { return s == Settled || s == OnTrial || s == Returned }

const (
	// MinTrial is the shortest trial. In the last second of each the old generation decides too.
	MinTrial = 2 * time.Second
	// overlap is the last part of a trial, in which the old generation decides too.
	overlap = time.Second
	// handover is the longest time for which both generations decide if the process dies between the steps of a change without a trial.
	handover = 10 * time.Second
)

// Count is what a counter has counted; bytes are those of the packets from their network header on.
type Count struct{ Packets, Bytes uint64 }

// StateError says that a generation is in a state that does not allow what was asked.
type StateError struct {
	Name   string // the generation
	State  State
	Remedy string
}

func (e *StateError) Error() string { return fmt.Sprintf("generation %s is %s", e.Name, e.State) }

// Hint is the remedy.
func (e *StateError) Hint() string { return e.Remedy }

// UnlessAbsent is err, or nil for a StateError that says that the generation is Absent: another tool has removed it.
func UnlessAbsent(err error) error {
	var state *StateError
	if errors.As(err, &state) && state.State == Absent {
		return nil
	}
	return err
}

// ExpiredError says that a trial had ended before it was confirmed. Nothing was changed.
type ExpiredError struct{ Name string }

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("the trial of generation %s has ended unconfirmed", e.Name)
}

// Hint is the remedy.
func (e *ExpiredError) Hint() string {
	return "the previous policy decides again; apply the new one once more, with more time to confirm"
}

// RemainsError says that a change is done, and the new generation decides, but remains of the old one are still there.
// Clean removes them.
type RemainsError struct {
	Name string // the old generation
	Err  error
}

func (e *RemainsError) Error() string {
	return fmt.Sprintf("removing generation %s: %v", e.Name, e.Err)
}

// Unwrap is the cause.
func (e *RemainsError) Unwrap() error { return e.Err }

// checkTrial returns an error for a length that a trial cannot have; 0 means no trial.
func checkTrial(trial time.Duration) error {
	if trial != 0 && trial < MinTrial {
		return fmt.Errorf("a trial of %v is shorter than %v", trial, MinTrial)
	}
	return nil
}

// succeed begins a trial of a generation, or restarts it. The timer for the old generation's return starts before it is set aside, and
// before the timer of the new one: so one of the two decides, however long a step takes.
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

// replaceable checks that a new generation is not there yet, and that the old one, unless "", is on its own.
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

// undo runs clean, even when ctx is done, and adds its error to err.
func undo(ctx context.Context, err error, clean func(context.Context) error) error {
	if failed := clean(context.WithoutCancel(ctx)); failed != nil {
		return errors.Join(err, fmt.Errorf("undoing the change: %w", failed))
	}
	return err
}

// numbered selects the names that are prefix and a number, except those to keep.
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
