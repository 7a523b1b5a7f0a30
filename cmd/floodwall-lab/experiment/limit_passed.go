// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// passRate is the rate in packets per second while passed packets are counted. The slowest rows can handle this rate, so no packet is lost before a
// limit.
const passRate = 500e3

// The goals of Floodwall's limit on XDP: the maximum deviation from the number of packets that the limit allows, and the minimum share of passed
// packets from sources that do not exceed the limit.
const (
	mostOff    = 0.02
	leastLight = 0.98
)

// passTime returns the time for which packets are sent while passed packets are counted.
func passTime(s *rig.Session) time.Duration { return 4 * s.Window }

// passage has the numbers of packets that a limit has handled, since it was installed or during some time.
type passage struct {
	over         uint64        // packets over the limit
	heavy, light uint64        // passed packets, by the kind of source
	received     uint64        // packets that reached the host
	time         time.Duration // the time in which packets were sent
}

// reading returns the figures of a passage. For the heavy sources, it is the number of passed packets divided by the number that the limit allows.
// For the light sources, if there are any, it is the share of their packets that passed.
func (p passage) reading(of limitTestCase) rig.Reading {
	allowed, heavy := of.allowed(p.time), float64(p.heavy)
	read := rig.Reading{
		"of-allowed": heavy / allowed, "off": math.Abs(heavy/allowed - 1), "passed/s": heavy / p.time.Seconds(), "allowed/s": allowed / p.time.Seconds(),
	}
	if sent := lightShare * float64(p.received); of.light != "" && sent > 0 {
		read["of-others"] = min(1, float64(p.light)/sent)
	}
	return read
}

// passTable returns the table with the passed packets of each row.
func passTable(s *rig.Session, rows []*limiter) *rig.Table {
	t := &rig.Table{
		Title: "limit: what passes", Doing: "what passes, ", Prefix: "passes/",
		Results: []string{"of-allowed", "of-others", "held", "kernel-B"},
		Columns: []rig.Column{
			{Head: "passed/s", Unit: "passed/s", Show: rig.Digits(0, 1)}, {Head: "allowed/s", Unit: "allowed/s", Show: rig.Digits(0, 1)},
			{Head: "of allowed", Unit: "of-allowed", Show: rig.Digits(3, 1)}, {Head: "min .. max", Unit: "of-allowed", Show: rig.Range(3, 1)},
			{Head: "of other sources", Unit: "of-others", Show: rig.Digits(3, 1)}, {Head: "prefixes held", Unit: "held", Show: rig.Count},
			{Head: "MB", Unit: "kernel-B", Show: rig.Digits(1, 1e6)},
		},
		Notes: []string{
			fmt.Sprintf("Medians of %d rounds of %v at %.1f Mpps. Passed: packets of the sources that send too much; allowed is their rate", s.Rounds, passTime(s), passRate/1e6),
			fmt.Sprintf("and, once, a burst of %d, for each prefix. Of other sources: the share of the packets that pass of sources that", burst),
			"send less than the limit; they come before that one, which is another in each round. The bar is for the round that",
			"is off most. Held: prefixes in memory after the last round; MB: the program's maps.",
		},
	}
	for _, r := range rows {
		row := &rig.Row{Name: r.Name, Label: r.Label, Missing: r.Missing}
		row.Take = func(ctx context.Context, round int) (rig.Reading, error) {
			return r.passRound(ctx, passTime(s), round+1, round+1 == s.Rounds)
		}
		if r.xdp {
			row.Goals = []rig.Goal{
				{Unit: "off", What: "off what the limit allows", Bound: mostOff, Most: true, Worst: true},
				{Unit: "of-others", What: "of other sources' packets", Bound: leastLight},
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// passRound counts the passed packets of a round. After the last round, it also reads the number of stored prefixes.
func (l *limiter) passRound(ctx context.Context, duration time.Duration, round int, last bool) (rig.Reading, error) {
	at, of := l.Subject.Site, l.of.inRound(round)
	if l.Subject.Program != nil {
		attached, err := at.Lab.Attach(at.In, l.Subject.Program)
		if err != nil {
			return nil, err
		}
		defer attached.Close()
	}
	if of.light != "" { // the heavy source comes when the memory is full
		if _, err := send(ctx, at, []lab.Flow{of.lightFlow()}, duration/2, 0); err != nil {
			return nil, err
		}
	}
	p, err := l.pass(ctx, of.flows(), duration, uint64(round))
	read := p.reading(of)
	if l.bytes > 0 {
		read["kernel-B"] = float64(l.bytes)
	}
	if err == nil && last && l.entries != nil {
		var held int
		held, err = l.entries(ctx)
		read["held"] = float64(held)
	}
	return read, err
}

// pass sends packets for a duration, and counts the passed packets.
func (l *limiter) pass(ctx context.Context, flows []lab.Flow, duration time.Duration, seed uint64) (p passage, err error) {
	before, err := l.count(ctx)
	if err != nil {
		return p, err
	}
	if p.time, err = send(ctx, l.Subject.Site, flows, duration, seed); err != nil {
		return p, err
	}
	after, err := l.count(ctx)
	p.received, p.over = after.received-before.received, after.over-before.over
	p.heavy, p.light = after.heavy-before.heavy, after.light-before.light
	return p, err
}

// send sends packets at passRate for a duration. It waits until the queue is empty, and returns the time that this took.
func send(ctx context.Context, s *rig.Site, flows []lab.Flow, duration time.Duration, seed uint64) (time.Duration, error) {
	source, err := s.Lab.NewSource(s.Out, lab.SourceOptions{
		Flows: flows, CPU: rig.SourceCPU, Seed: seed, Rate: passRate, Count: uint64(passRate * duration.Seconds()), Urgent: true,
	})
	if err != nil {
		return 0, err
	}
	err = source.Run(ctx)
	took := source.Took()
	time.Sleep(20 * time.Millisecond)
	return took, errors.Join(err, source.Close(), ctx.Err())
}

// count returns the number of packets that the row has counted so far, and the number that have reached its host.
func (l *limiter) count(ctx context.Context) (p passage, err error) {
	received, err := l.Subject.Site.In.Received()
	if err != nil {
		return p, err
	}
	p, err = l.counts(ctx)
	p.received = received
	return p, err
}
