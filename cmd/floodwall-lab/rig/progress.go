// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Progress is a line on a terminal that shows the current work and the remaining time of the run. Show and Step may be called at the same time.
type Progress struct {
	out     *os.File // nil: no line
	outlook *outlook
	shown   bool

	began time.Time // of the steps
	done  atomic.Int32
	steps int
}

// NewProgress shows the progress of a run of these experiments on a terminal. If out is no terminal, it shows nothing.
func NewProgress(out io.Writer, experiments []string, o Options) *Progress {
	p := &Progress{outlook: newOutlook(experiments, o)}
	if f, ok := out.(*os.File); ok && columns(f) > 0 {
		p.out = f
	}
	return p
}

// columns returns the width of a terminal: 0 if f is no terminal, and 80 if the width is unknown.
func columns(f *os.File) int {
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 80
	}
	return int(size.Col)
}

// Begin starts the next experiment.
func (p *Progress) Begin() {
	p.outlook.begin(time.Now())
	p.Expect(0)
}

// Expect starts a number of steps that take about the same time each.
func (p *Progress) Expect(steps int) {
	p.began, p.steps = time.Now(), steps
	p.done.Store(0)
}

// Step counts one step as done.
func (p *Progress) Step() { p.done.Add(1) }

// Show writes the line again.
func (p *Progress) Show(format string, args ...any) {
	if p.out == nil {
		return
	}
	p.shown = true
	line := p.outlook.String() + ", " + leftText(p.outlook.left(time.Now(), p.left())) + ": " + fmt.Sprintf(format, args...)
	fmt.Fprintf(p.out, "\r\x1b[K%s", cut(line, columns(p.out)-1))
}

// left returns the remaining time of the steps, estimated from the finished steps; 0 if no step is finished.
func (p *Progress) left() time.Duration {
	done := int(p.done.Load())
	if done == 0 || p.steps <= done {
		return 0
	}
	return time.Since(p.began) / time.Duration(done) * time.Duration(p.steps-done)
}

// String returns the experiment that runs, and its number among all.
func (l *outlook) String() string {
	name := l.names[l.current]
	if len(l.names) == 1 {
		return name
	}
	return fmt.Sprintf("%s (%d of %d)", name, l.current+1, len(l.names))
}

// leftText formats an estimated time. A time of at least a minute is rounded to minutes.
func leftText(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.0fs left", max(1, d.Seconds()))
	}
	return fmt.Sprintf("%.0fm left", d.Minutes())
}

// cut returns as much of a line as fits into the width.
func cut(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(0, width)])
}

// End removes the line.
func (p *Progress) End() {
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	p.shown = false
}
