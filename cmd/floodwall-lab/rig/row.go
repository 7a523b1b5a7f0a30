// SPDX-License-Identifier: Apache-2.0

// This file has the runner of experiments: rows that take turns, round by round. The file table.go publishes their figures.

package rig

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/internal/lab"
)

// Reading contains the figures of one round, by their units. A figure without a value in the round is absent.
type Reading map[string]float64

// Row is one guard with one load.
type Row struct {
	Name   string // of the result, within the experiment
	Label  string // in the table
	Kind   string // Kind is that of the guard, Load is the traffic; columns and rows find other rows by both
	Load   string
	Line   string // rows with the same Line share a line of the table; "": a line of its own
	Hidden bool   // the row is in no line
	Stage  int    // in each round, rows of a lower stage come first

	Setup   *Setup // the parts that the row needs; rows may share it
	Take    func(ctx context.Context, round int) (Reading, error)
	Goals   []Goal
	Article []string     // an article's figures for the row, in the order of their columns
	Missing string       // why the row cannot be measured
	Rounds  []Reading    // the readings
	Extra   []lab.Metric // more figures of the result

	// Of rows of a table of packet rates.
	Subject Subject
	Flows   []lab.Flow
	Flood   string // for programs: rows with the same name have the same flows, and take turns under one flood
}

// Setup builds and installs the things that rows measure.
type Setup struct {
	Label string
	Do    func(context.Context) error

	done    bool
	missing string
}

// Ready reports whether the setup is installed.
func (s *Setup) Ready() bool { return s.done && s.missing == "" }

// Figure returns the values of a figure, from all rounds that gave it.
func (r *Row) Figure(unit string) (all report.Samples) {
	for _, read := range r.Rounds {
		if v, ok := read[unit]; ok {
			all = append(all, v)
		}
	}
	return all
}

// By returns a figure of the row divided by the same figure of another row, from all rounds with both figures. The other row may be nil.
func (r *Row) By(other *Row, unit string) report.Samples { return r.share(unit, other, unit) }

func (r *Row) share(unit string, other *Row, of string) (all report.Samples) {
	if other == nil {
		return nil
	}
	for i := range min(len(r.Rounds), len(other.Rounds)) {
		v, is := r.Rounds[i][unit]
		if base := other.Rounds[i][of]; is && base > 0 {
			all = append(all, v/base)
		}
	}
	return all
}

// With runs fn with a builder in a lab. Both end with fn.
func With(ctx context.Context, s *Session, fn func(*Builder) error) error {
	return InLab(ctx, func(l *lab.Lab) error {
		b := &Builder{Session: s, Lab: l}
		defer b.Close()
		return fn(b)
	})
}

// Run sets up the wanted rows of tables, and measures all rounds, in which the rows take turns. It publishes the figures, also when the rest cannot
// be measured.
func (s *Session) Run(ctx context.Context, tables ...*Table) error {
	if err := s.SetUpRows(ctx, tables...); err != nil {
		return err
	}
	defer func() {
		for _, t := range tables {
			t.Publish(s.Outcome)
		}
	}()
	return s.TakeAll(ctx, tables...)
}

// SetUpRows removes the unwanted rows, and sets up the others.
func (s *Session) SetUpRows(ctx context.Context, tables ...*Table) error {
	for _, t := range tables {
		t.Rows = slices.DeleteFunc(t.Rows, func(r *Row) bool { return !s.Wants(r.Name) })
		for _, r := range t.Rows {
			if err := s.setUp(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Session) setUp(ctx context.Context, r *Row) (err error) {
	up := r.Setup
	if up == nil {
		return nil
	}
	if !up.done {
		up.done = true
		up.missing, err = s.SetUp(up.Label, func() error { return up.Do(ctx) })
	}
	r.Missing = up.missing
	return err
}

// TakeAll measures all rounds, in which the rows take turns.
func (s *Session) TakeAll(ctx context.Context, tables ...*Table) error {
	steps := 0
	for _, t := range tables {
		steps += s.Rounds * len(t.Rows)
	}
	s.Steps.Expect(steps)
	for round := range s.Rounds {
		for _, t := range tables {
			for _, stage := range t.stages() {
				if err := s.takeStage(ctx, t, round, stage); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// takeStage measures the rows of a stage once.
func (s *Session) takeStage(ctx context.Context, t *Table, round, stage int) error {
	if t.Before != nil {
		if err := t.Before(ctx, round, stage); err != nil {
			return err
		}
	}
	free := make(chan struct{}, report.Choice(stage == 0, max(1, t.Lanes), 1))
	var taking sync.WaitGroup
	var failed atomic.Pointer[error] // the first error
	for _, r := range Alternated(t.Rows, round) {
		if r.Stage != stage {
			continue
		}
		if free <- struct{}{}; failed.Load() != nil {
			break
		}
		s.Steps.Show("round %d of %d, %s%s", round+1, s.Rounds, t.Doing, r.Label)
		taking.Go(func() {
			if err := s.take(ctx, t, r, round); err != nil {
				err = fmt.Errorf("%s%s: %w", t.Doing, r.Label, err)
				failed.CompareAndSwap(nil, &err)
			}
			s.Steps.Step()
			<-free
		})
	}
	taking.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// take measures a row once, and repeats the measurement if it was disturbed. If all tries were disturbed, the last one counts.
func (s *Session) take(ctx context.Context, t *Table, r *Row, round int) error {
	if r.Missing != "" {
		return nil
	}
	var read Reading
	for range s.Tries() {
		var err error
		if read, err = r.Take(ctx, round); err == nil {
			err = ctx.Err()
		}
		if r.Missing, err = Tolerate(err); err != nil || r.Missing != "" {
			return err
		}
		if t.Disturbed == nil || !t.Disturbed(read) {
			break
		}
	}
	r.Rounds = append(r.Rounds, read)
	return nil
}

// stages returns the stages of the table's rows, in ascending order.
func (t *Table) stages() (all []int) {
	for _, r := range t.Rows {
		all = append(all, r.Stage)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// SetUp installs the things that a row measures. The result missing tells which tool the host lacks; "": none.
func (s *Session) SetUp(label string, install func() error) (missing string, err error) {
	s.Steps.Show("installing %s", label)
	if missing, err = Tolerate(install()); err != nil {
		return "", fmt.Errorf("%s: %w", label, err)
	}
	return missing, nil
}
