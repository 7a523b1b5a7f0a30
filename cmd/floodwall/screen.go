// SPDX-License-Identifier: Apache-2.0

// This file shows the data of `floodwall top`: as tables, and on a terminal as a screen that is controlled by keys.

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

// ShowTop calls next repeatedly and shows the results on a terminal, until the user presses a key that ends it. It returns the error of next, or the
// cause of the end of ctx. next is not called after ShowTop has returned.
func ShowTop(ctx context.Context, in io.Reader, out io.Writer, next func(context.Context) (*operate.Top, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &screen{next: func() tea.Msg {
		t, err := next(ctx)
		return reading{t, err}
	}}
	// A key that usually sends a signal, such as ctrl+c, arrives here as a key. Other signals end ctx.
	_, err := tea.NewProgram(s, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler()).Run()
	cancel()
	if s.waits { // the last reading still uses next: wait for its end
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

// screen is the screen of top.
type screen struct {
	next          func() tea.Msg
	waits         bool // next is running
	ended         chan struct{}
	top           *operate.Top
	failed        error
	part          int // index of the shown part of the samples: sources, destinations, …
	paused        bool
	width, height int
}

// reading is a result of next.
type reading struct {
	top *operate.Top
	err error
}

// Init starts the first reading.
func (s *screen) Init() tea.Cmd { return s.read() }

func (s *screen) read() tea.Cmd {
	s.waits, s.ended = true, make(chan struct{})
	next, ended := s.next, s.ended
	return func() tea.Msg {
		defer close(ended)
		return next()
	}
}

// Update handles a key, a new size, or a reading.
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

// screenKeys is the last line of the screen.
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

// View returns the screen, cut to the size of the terminal.
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
	rest := s.height - len(lines) - 3 // minus blank lines, and the line of keys
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

// firstLines returns at most n lines. If it leaves lines out, its last line says how many.
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
