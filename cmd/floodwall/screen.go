// This file shows what `floodwall top` reads: as tables, and as a screen with keys on a terminal.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// ShowTop shows what next reads, again and again, on the terminal of in and out until a key ends it. It returns the error of next that
// ended it, or the cause of the end of ctx. next is not called any more when it returns.
func ShowTop(ctx context.Context, in io.Reader, out io.Writer, next func(context.Context) (*operate.Top, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &screen{next: func() tea.Msg {
		t, err := next(ctx)
		return reading{t, err}
	}}
	// The terminal's signals are keys here, and others end ctx.
	_, err := tea.NewProgram(s, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler()).Run()
	cancel()
	if s.waits { // what it reads from is its own until the reading has come to its end
		<-s.ended
	}
	if s.failed != nil {
		return s.failed
	}
	if errors.Is(err, tea.ErrProgramKilled) {
		err = context.Cause(ctx)
	}
	return err
}

// screen is what top shows.
type screen struct {
	next          func() tea.Msg
	waits         bool // for a reading
	ended         chan struct{}
	top           *operate.Top
	failed        error
	part          int // of the samples: sources, destinations, …
	paused        bool
	width, height int
}

// reading is a result of Watch.Next.
type reading struct {
	top *operate.Top
	err error
}

// Init begins to read.
func (s *screen) Init() tea.Cmd { return s.read() }

func (s *screen) read() tea.Cmd {
	s.waits, s.ended = true, make(chan struct{})
	next, ended := s.next, s.ended
	return func() tea.Msg {
		defer close(ended)
		return next()
	}
}

// Update takes a key, a new size, or a reading.
func (s *screen) Update(m tea.Msg) (tea.Model, tea.Cmd) {
	switch m := m.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = m.Width, m.Height
	case tea.KeyPressMsg:
		return s, s.key(m.String())
	case reading:
		s.waits = false
		if m.err != nil {
			s.failed = m.err
			return s, tea.Quit
		}
		if !s.paused {
			s.top = m.top
		}
		return s, s.read()
	}
	return s, nil
}

// screenKeys are at the foot of the screen.
const screenKeys = "q quit   space pause   tab, arrows: sources, destinations, ports, …"

func (s *screen) key(name string) tea.Cmd {
	switch name {
	case "q", "esc", "ctrl+c":
		return tea.Quit
	case "space":
		s.paused = !s.paused
	case "tab", "right", "down", "l":
		s.part++
	case "shift+tab", "left", "up", "h":
		s.part--
	}
	return nil
}

// View is the screen: no line is wider, and there are no more of them.
func (s *screen) View() tea.View {
	v := tea.NewView(strings.Join(s.lines(), "\n"))
	v.AltScreen = true
	return v
}

func (s *screen) lines() (lines []string) {
	if s.top == nil || s.height == 0 {
		return []string{"floodwall top: reading …", screenKeys}
	}
	lines = append(lines, Head(s.top)...)
	if s.top.Warning != "" {
		lines = append(lines, "warning: "+wording.Printable(s.top.Warning))
	}
	rest := s.height - len(lines) - 3 // blank lines, and the keys
	reasons, parts := Reasons(s.top).Lines(), SampleParts(s.top)
	lower := []string(nil)
	if len(parts) > 0 {
		s.part = (s.part%len(parts) + len(parts)) % len(parts)
		lower = parts[s.part].Lines()
	}
	upper := min(len(reasons), max(rest/2, rest-len(lower)))
	if rest > 0 {
		lines = append(append(lines, ""), firstLines(reasons, upper)...)
		lines = append(append(lines, ""), firstLines(lower, rest-upper)...)
	}
	for len(lines) < s.height-1 {
		lines = append(lines, "")
	}
	keys := screenKeys
	if s.paused {
		keys = "PAUSED   " + keys
	}
	lines = append(lines[:s.height-1], keys)
	for i := range lines {
		lines[i] = clip(lines[i], s.width)
	}
	return lines
}

// firstLines are at most n lines; the last says how many there are beyond.
func firstLines(lines []string, n int) []string {
	if len(lines) <= max(n, 0) {
		return lines
	}
	if n < 1 {
		return nil
	}
	return append(lines[:n-1:n-1], fmt.Sprintf("… %d more", len(lines)-n+1))
}

// clip cuts a line to a number of characters.
func clip(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(0, width)])
}
