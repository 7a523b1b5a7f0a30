// This file is what experiments are built of: sites in a lab, what is installed there, and the rates and times that are
// taken of it, round by round.

package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
)

// Options are the choices of a run. The zero value is good.
type Options struct {
	Rounds   int            // each row is measured so many times, in turn with the others; 0: 5, or 2 with Quick
	Window   time.Duration  // of one measurement; 0: 500 ms, or 100 ms with Quick
	Phase    time.Duration  // of requests to a server; 0: 10 s, or 3 s with Quick. Below that, blocklist makes fewer requests.
	Quick    bool           // small sizes, short windows: whether it works, not how fast it is
	All      bool           // also what takes minutes: the slow tools with 10 million addresses
	Sizes    []int          // of random address lists, for sets, exchange and blocklist; nil: each has its own
	Routes   int            // of the router of placement; 0: 925,525, as in the article
	Rows     *regexp.Regexp // of packet rates, exchange, dns, udp, detect, synproxy and program, those whose names match; nil: all
	List     string         // a file of addresses for both to measure with, in place of random ones
	Seed     uint64         // of what detect sends; the same seed gives the same packets
	Bpfilter string         // a source tree of bpfilter in which its benchmark is built, for program; "": none
	Captures string         // a directory of recorded attacks, for detect; "": none
	Progress io.Writer      // where to show a line of progress, if it is a terminal; nil: nowhere

	// Find finds another program of Floodwall, for detect.
	Find func(program string) (string, error)
}

// Session is one experiment of a run.
type Session struct {
	Options
	Outcome *report.Outcome
	Steps   *Progress
}

// MaxSize is the largest number of random addresses in a list: there must be others left that are not listed.
const MaxSize = 2_000_000_000

// MaxRoutes is the largest number of routes: there must be others left to draw.
const MaxRoutes = 4_000_000

// WithDefaults is the options with what is usual in place of zero values.
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

// Tries is how often a disturbed measurement is taken before it is taken as it is.
func (o Options) Tries() int {
	if o.Quick {
		return 1
	}
	return 3
}

// Wants reports whether the row with this name, within its experiment, is to be measured.
func (o Options) Wants(row string) bool { return o.Rows == nil || o.Rows.MatchString(row) }

// InLab runs fn with an empty lab, which ends with it.
func InLab(ctx context.Context, fn func(*lab.Lab) error) (err error) {
	l, err := lab.New(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return fn(l)
}

// Alternated is the cases, in the other direction in every other round: what goes on from one to the next, as in a warm
// cache, goes on to both neighbors.
func Alternated[T any](cases []T, round int) []T {
	turn := slices.Clone(cases)
	if round%2 == 1 {
		slices.Reverse(turn)
	}
	return turn
}

// InTurns takes all rounds of some cases, in which they take turns. The label of a case is for the progress and for errors.
func InTurns[T any](s *Session, cases []T, label func(T) string, take func(round int, c T) error) error {
	s.Steps.Expect(s.Rounds * len(cases))
	for round := range s.Rounds {
		for _, c := range Alternated(cases, round) {
			s.Steps.Show("round %d of %d, %s", round+1, s.Rounds, label(c))
			if err := take(round, c); err != nil {
				return fmt.Errorf("%s: %w", label(c), err)
			}
			s.Steps.Step()
		}
	}
	return nil
}

// ArticleRoutes is the number of routes of the router in the article that `placement` follows.
const ArticleRoutes = 925_525
