// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestLanes measures rows of a second each: two at a time in stage 0, then one at a time.
func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		table := &Table{Lanes: 2}
		for i, most := range []int32{2, 2, 2, 2, 1, 1} {
			r := &Row{Label: "row", Stage: i / 4}
			r.Take = func(context.Context, int) (Reading, error) {
				defer running.Add(-1)
				if n := running.Add(1); n > most {
					t.Errorf("stage %d: %d rows at a time, want %d", r.Stage, n, most)
				}
				time.Sleep(time.Second)
				return Reading{"s": 1}, nil
			}
			table.Rows = append(table.Rows, r)
		}
		s := &Session{Options: Options{Rounds: 2}, Steps: NewProgress(io.Discard, nil, Options{})}
		began := time.Now()
		if err := s.TakeAll(t.Context(), table); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 8*time.Second {
			t.Errorf("two rounds took %v, want 2 s for four rows and 2 s for two, twice", took)
		}
		for _, r := range table.Rows {
			if len(r.Rounds) != 2 {
				t.Errorf("a row of stage %d has %d rounds, want 2", r.Stage, len(r.Rounds))
			}
		}
	})
}

// TestLanesFail checks that no row starts after one has failed.
func TestLanesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("no space")
		taken := 0
		table := &Table{Doing: "clients, "}
		for range 3 {
			table.Rows = append(table.Rows, &Row{Label: "row", Take: func(context.Context, int) (Reading, error) {
				taken++
				return nil, failure
			}})
		}
		s := &Session{Options: Options{Rounds: 2}, Steps: NewProgress(io.Discard, nil, Options{})}
		if err := s.TakeAll(t.Context(), table); !errors.Is(err, failure) || err.Error() != "clients, row: no space" || taken != 1 {
			t.Errorf("%v after %d rows, want %v after one", err, taken, failure)
		}
	})
}
