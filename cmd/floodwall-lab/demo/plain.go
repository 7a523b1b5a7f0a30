// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io"
	"time"
)

// plain shows a demonstration line by line. It is for files, and for terminals that do not support control codes.
type plain struct{ out io.Writer }

func (p *plain) Interval() time.Duration { return time.Second }

func (p *plain) Policy(text string) { fmt.Fprintf(p.out, "%s:\n%s\n", policyFile, text) }

func (p *plain) Note(text string) { fmt.Fprintf(p.out, "%s\n", text) }

func (p *plain) Page(address string) {
	fmt.Fprintf(p.out, "the daemon's page, until the end: %s\n", address)
}

func (p *plain) Phase(number int, title string) {
	fmt.Fprintf(p.out, "phase %d of %d: %s\n", number+1, phases, title)
}

func (p *plain) Moment(m Moment) {
	line := fmt.Sprintf("%4.0f s  %s", m.Elapsed.Seconds(), describe(m))
	if len(m.Drops) > 0 {
		line += fmt.Sprintf(", %.2f dropped, most by %s", m.Traffic.Dropped/1e6, m.Drops[0].Reason)
	}
	fmt.Fprintln(p.out, line)
}

func (p *plain) Close() error { return nil }

// describe returns a line that describes a moment.
func describe(m Moment) string {
	return fmt.Sprintf("%3d answered, %3d failed, slowest %s; flood %s, %.2f taken in; CPU %.0f%%",
		m.OK, m.Failed, millis(m.Slowest), mpps(m.Traffic.Sent), m.Traffic.Received/1e6, m.Traffic.Busy*100)
}
