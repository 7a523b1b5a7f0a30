package bench

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// progress is a line on a terminal that says what is being done and for how long still. It is for one goroutine.
type progress struct {
	out   io.Writer // nil: no line
	name  string    // of the experiment
	shown bool

	began       time.Time // of the steps
	done, steps int
}

// newProgress shows an experiment's progress on a terminal, and nowhere when out is none.
func newProgress(out io.Writer, name string) *progress {
	f, ok := out.(*os.File)
	if !ok {
		return &progress{}
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return &progress{}
	}
	return &progress{out: f, name: name}
}

// expect begins a stretch of steps that take about the same time each.
func (p *progress) expect(steps int) { p.began, p.done, p.steps = time.Now(), 0, steps }

// step counts one step as done.
func (p *progress) step() { p.done++ }

// show replaces the line.
func (p *progress) show(format string, args ...any) {
	if p.out == nil {
		return
	}
	p.shown = true
	fmt.Fprintf(p.out, "\r\x1b[K%s: %s%s", p.name, fmt.Sprintf(format, args...), p.left())
}

// left estimates the time left from the steps done.
func (p *progress) left() string {
	if p.done == 0 || p.steps <= p.done {
		return ""
	}
	left := time.Since(p.began) / time.Duration(p.done) * time.Duration(p.steps-p.done)
	return fmt.Sprintf(", %s left", left.Round(time.Second))
}

// end removes the line.
func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	p.shown = false
}
