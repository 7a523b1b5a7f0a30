package rig

import (
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Progress is a line on a terminal that says what is being done and for how long the run still goes on. It is for one
// goroutine.
type Progress struct {
	out     *os.File // nil: no line
	outlook *outlook
	shown   bool

	began       time.Time // of the steps
	done, steps int
}

// NewProgress shows the progress of a run of these experiments on a terminal, and nowhere when out is none.
func NewProgress(out io.Writer, experiments []string, o Options) *Progress {
	p := &Progress{outlook: newOutlook(experiments, o)}
	if f, ok := out.(*os.File); ok && columns(f) > 0 {
		p.out = f
	}
	return p
}

// columns is the width of a terminal; 0 when it is none, and what is usual when it does not tell.
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

// Begin has the next experiment begin.
func (p *Progress) Begin() {
	p.outlook.begin(time.Now())
	p.Expect(0)
}

// Expect begins a stretch of steps that take about the same time each.
func (p *Progress) Expect(steps int) { p.began, p.done, p.steps = time.Now(), 0, steps }

// Step counts one step as done.
func (p *Progress) Step() { p.done++ }

// Show replaces the line.
func (p *Progress) Show(format string, args ...any) {
	if p.out == nil {
		return
	}
	p.shown = true
	line := p.outlook.String() + ", " + leftText(p.outlook.left(time.Now(), p.left())) + ": " + fmt.Sprintf(format, args...)
	fmt.Fprintf(p.out, "\r\x1b[K%s", cut(line, columns(p.out)-1))
}

// left is the time left of the steps, by those done; 0 when none is.
func (p *Progress) left() time.Duration {
	if p.done == 0 || p.steps <= p.done {
		return 0
	}
	return time.Since(p.began) / time.Duration(p.done) * time.Duration(p.steps-p.done)
}

// String is the experiment that runs, and which of all it is.
func (l *outlook) String() string {
	name := l.names[l.current]
	if len(l.names) == 1 {
		return name
	}
	return fmt.Sprintf("%s (%d of %d)", name, l.current+1, len(l.names))
}

// leftText is a time that is only guessed, so not to the second when it is long.
func leftText(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.0fs left", max(1, d.Seconds()))
	}
	return fmt.Sprintf("%.0fm left", d.Minutes())
}

// cut is as much of a line as fits.
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
