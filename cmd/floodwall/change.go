// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// change is a run of the command block or unblock.
type change struct {
	*env
	verb, preposition string
	spares            func(netip.Prefix) error // returns an error for a prefix that must not be changed; nil: all may be changed
	do                func(context.Context, []piece) (control.Fill, error)
	terms             func(line []byte) (operate.Terms, error) // parses the terms of a line after the prefix; nil: lines have none

	lined    bool    // errors name the line
	waiting  []piece // read, but not changed yet
	fill     control.Fill
	changed  int
	refused  int
	fullSaid bool
	lossSaid bool
	hinted   string // the last hint that was printed
}

// piece is one of the prefixes of an entry.
type piece struct {
	prefix netip.Prefix
	line   int  // line, or argument, of the entry, from 1
	part   bool // the entry has other prefixes besides this one
	terms  operate.Terms
}

// Entries from a stream are changed in batches, because each batch takes a lock and opens the set. A batch is complete when it has batchEntries
// entries, or batchWait after its first entry.
const (
	batchEntries = 32768
	batchWait    = 50 * time.Millisecond
)

// mostReported is the maximum number of bad lines of a stream that are reported individually.
const mostReported = 20

func (c *change) run(ctx context.Context, args []string) (err error) {
	if slices.Contains(args, "-") {
		err = c.stream(ctx, args)
	} else {
		err = c.arguments(ctx, args)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if c.refused > mostReported {
		c.Report(fmt.Errorf("and %s", wording.Things(c.refused-mostReported, "more", "more")))
	}
	if printErr := c.summary(); printErr != nil {
		return printErr
	}
	if err == nil && c.refused > 0 {
		return cli.ErrFailed
	}
	return err
}

func (c *change) summary() error {
	if c.JSON {
		return c.PrintJSON(operate.Changed{
			Set: c.fill.Set, Changed: c.changed, Refused: c.refused, Entries: c.fill.Entries, Capacity: c.fill.Capacity,
		})
	}
	c.Println("%s %s %s %s, which holds %s of %s", c.verb, wording.Things(c.changed, "entry", "entries"), c.preposition, c.fill.Set,
		wording.Count(c.fill.Entries), wording.Count(c.fill.Capacity))
	return nil
}

// arguments changes the prefixes on the command line. If one of them cannot be parsed, nothing is changed.
func (c *change) arguments(ctx context.Context, args []string) error {
	var errs []error
	for i, a := range args {
		list, err := operate.EntryOf(a, c.spares)
		errs = append(errs, err)
		c.add(i+1, list, operate.Terms{})
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.flush(ctx)
}

func (c *change) add(line int, list []netip.Prefix, terms operate.Terms) {
	for _, p := range list {
		c.waiting = append(c.waiting, piece{p, line, len(list) > 1, terms})
	}
}

// parsed is a parsed line of a stream.
type parsed struct {
	number int
	list   []netip.Prefix
	terms  operate.Terms
	err    error
	last   bool // no line, but err or the end of the stream
}

// stream changes the prefixes on standard input, line by line, until its end.
func (c *change) stream(ctx context.Context, args []string) error {
	if len(args) > 1 {
		return wording.Hinted("- stands for standard input, and goes with no other argument", "leave - or the others out")
	}
	if err := c.flush(ctx); err != nil { // an empty change, which shows whether the set exists
		return err
	}
	c.lined = true
	lines := make(chan parsed, 1024)
	go c.read(ctx, lines)
	var due <-chan time.Time
	for {
		select {
		case l := <-lines:
			if l.last {
				return errors.Join(c.flush(ctx), l.err)
			}
			c.take(l)
			if due == nil && len(c.waiting) > 0 {
				due = time.After(batchWait)
			}
			if len(c.waiting) < batchEntries {
				continue
			}
		case <-due:
		case <-ctx.Done():
			return errors.Join(c.flush(context.WithoutCancel(ctx)), ctx.Err())
		}
		due = nil
		if err := c.flush(ctx); errors.Is(err, datapath.ErrLocked) {
			c.Warning(err.Error() + ": " + wording.Things(len(c.waiting), "entry waits", "entries wait"))
			due = time.After(batchWait)
		} else if err != nil {
			return err
		}
	}
}

// take adds the prefixes of a line to the waiting entries, or reports the error of the line.
func (c *change) take(l parsed) {
	if l.err != nil {
		c.refuse(fmt.Sprintf("line %d: ", l.number), l.err)
	}
	c.add(l.number, l.list, l.terms)
}

// read parses the lines of standard input and sends them to a channel, until the input or ctx ends.
func (c *change) read(ctx context.Context, to chan<- parsed) {
	send := func(l parsed) bool {
		select {
		case to <- l:
			return true
		case <-ctx.Done():
			return false
		}
	}
	in := bufio.NewScanner(c.Stdin)
	n := 1
	for ; in.Scan(); n++ {
		l := parsed{number: n}
		if l.list, l.err = operate.Entry(in.Bytes(), c.spares); l.list != nil && c.terms != nil {
			if l.terms, l.err = c.terms(in.Bytes()); l.err != nil {
				l.list = nil
			}
		}
		if (l.list != nil || l.err != nil) && !send(l) {
			return
		}
	}
	err := in.Err()
	if err != nil && err != io.EOF {
		err = fmt.Errorf("line %d: %w", n, err)
	}
	send(parsed{err: err, last: true})
}

// flush changes the waiting entries.
func (c *change) flush(ctx context.Context) error {
	fill, err := c.do(ctx, c.waiting)
	var refused ban.Refusals
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	for _, r := range refused {
		place := ""
		if c.lined {
			place = fmt.Sprintf("line %d: ", c.waiting[r.Index].line)
		}
		c.refuse(place, r.Err)
	}
	c.changed += len(fill.Changed)
	c.fill = fill
	c.waiting = c.waiting[:0]
	if fill.Unsaved != nil && !c.lossSaid {
		c.lossSaid = true
		c.Warning(fmt.Sprintf("it has effect, but does not last over a reboot: %v; `floodwall daemon` saves it when that is mended", fill.Unsaved))
	}
	if w := fill.Warning(); w != "" && !c.fullSaid && c.verb == "blocked" {
		c.fullSaid = true
		c.Warning(w)
	}
	return nil
}

// refuse reports an entry that could not be changed.
func (c *change) refuse(place string, err error) {
	if c.refused++; c.refused > mostReported {
		return
	}
	p := operate.Problems(err)[0]
	c.StderrLine("error", place+p.String())
	if p.Hint != c.hinted { // the hint for a full set is the same for each entry
		c.StderrLine("hint", p.Hint)
		c.hinted = p.Hint
	}
}
