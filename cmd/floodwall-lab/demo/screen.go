// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"io"
	"strconv"
	"strings"
)

// screen is the lines of a terminal with the picture. The lines above stay.
//
// It uses three control sequences of ECMA-48: CUU moves the cursor up, EL and ED erase from the cursor to the end of
// the line and of the display.
type screen struct {
	out   io.Writer
	drawn []int // widths of the lines that were drawn last; the cursor is at the start of the line below them
}

// draw replaces the drawn lines by the lines of view, in a terminal of the given width. It makes a single write, so that no incomplete picture is
// visible.
func (s *screen) draw(view string, width int) error {
	var frame strings.Builder
	frame.WriteString("\r")
	if up := s.rows(width); up > 0 {
		frame.WriteString("\x1b[" + strconv.Itoa(up) + "A")
	}
	s.drawn = s.drawn[:0]
	for line := range strings.Lines(view) {
		frame.WriteString("\x1b[K" + line)
		s.drawn = append(s.drawn, columns(strings.TrimRight(line, "\n")))
	}
	frame.WriteString("\x1b[J")
	_, err := io.WriteString(s.out, frame.String())
	return err
}

// rows returns the number of rows that the last drawn lines need. If the terminal has become narrower since then, the terminal has wrapped the lines.
func (s *screen) rows(width int) (n int) {
	for _, columns := range s.drawn {
		n += max(1, (columns+width-1)/width)
	}
	return n
}
