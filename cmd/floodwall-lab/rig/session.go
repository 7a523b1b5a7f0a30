// SPDX-License-Identifier: Apache-2.0

// This file has the options of a run, and the session of one experiment.

package rig

import (
	"context"
	"errors"
	"io"
	"regexp"
	"slices"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/internal/lab"
)

// Options are the choices of a run. The zero value is good.
type Options struct {
	Rounds   int            // rounds in which each row is measured, in turn with the others; 0: 5, or 2 with Quick
	Window   time.Duration  // of one measurement; 0: 500 ms, or 100 ms with Quick
	Phase    time.Duration  // of requests to a server; 0: 10 s, or 3 s with Quick. With a shorter phase, blocklist makes fewer requests.
	Quick    bool           // small sizes and short windows: they test that the run works, not how fast it is
	All      bool           // includes the measurements that take minutes: the slow tools with 10 million addresses
	Sizes    []int          // of random address lists, for sets, exchange and blocklist; nil: each has its own
	Routes   int            // of the router of placement; 0: 925,525, as in the article
	Rows     *regexp.Regexp // names of the rows to measure, except in placement and blocklist; nil: all
	List     string         // a file of addresses that set and blocklist experiments use in place of random ones
	Seed     uint64         // a file of addresses for sets, exchange and blocklist, in place of random ones
	Bpfilter string         // a source tree of bpfilter, in which program builds bpfilter's benchmark; "": none
	Captures string         // a directory of recorded attacks, for detect; "": none
	Progress io.Writer      // where to show a line of progress, if it is a terminal; nil: nowhere

	// Find returns the path of another program of Floodwall, for detect.
	Find func(program string) (string, error)
}

// Session is one experiment of a run.
type Session struct {
	Options
	Outcome *report.Outcome
	Steps   *Progress
}

// MaxSize is the largest number of random addresses in a list. Enough addresses must remain that are not listed.
const MaxSize = 2_000_000_000

// MaxRoutes is the largest number of routes. Enough other routes must remain to draw from.
const MaxRoutes = 4_000_000

// WithDefaults returns the options with defaults in place of zero values.
func (o Options) WithDefaults() Options {
	rounds, window, phase := 5, 500*time.Millisecond, 10*time.Second
	if o.Quick {
		rounds, window, phase = 2, 100*time.Millisecond, 3*time.Second
	}
	if o.Rounds == 0 {
		o.Rounds = rounds
	}
	if o.Window == 0 {
		o.Window = window
	}
	if o.Phase == 0 {
		o.Phase = phase
	}
	if o.Routes == 0 {
		o.Routes = ArticleRoutes
	}
	return o
}

// Tries returns how often a disturbed measurement is tried. The last result counts even if it is disturbed.
func (o Options) Tries() int {
	if o.Quick {
		return 1
	}
	return 3
}

// Wants reports whether the row of this name (within its experiment) is measured.
func (o Options) Wants(row string) bool { return o.Rows == nil || o.Rows.MatchString(row) }

// InLab runs fn with an empty lab, and closes the lab when fn returns.
func InLab(ctx context.Context, fn func(*lab.Lab) error) (err error) {
	l, err := lab.New(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return fn(l)
}

// Alternated returns the cases, in reverse order in every other round. So an effect of one case on the next, for example a warm cache, has an
// influence on both its neighbors.
func Alternated[T any](cases []T, round int) []T {
	turn := slices.Clone(cases)
	if round%2 == 1 {
		slices.Reverse(turn)
	}
	return turn
}

// ArticleRoutes is the number of routes of the router in the article of `placement`.
const ArticleRoutes = 925_525
