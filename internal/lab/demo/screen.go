package demo

import (
	"io"
	"strconv"
	"strings"
)

// screen is those lines of a terminal that hold the picture. What is above stays.
//
// It uses three control sequences of ECMA-48: CUU moves the cursor up, EL and ED erase from the cursor to the end of
// the line and of the display.
type screen struct {
	out   io.Writer
	drawn []int // columns of the lines that were drawn last; the cursor is at the beginning of the line below
}

// draw replaces the lines by those of view, in a terminal of so many columns. Everything is one write, so that no half
// picture is seen.
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

// rows is how many rows the lines take that were drawn last. A terminal that has become narrower since breaks them.
func (s *screen) rows(width int) (n int) {
	for _, columns := range s.drawn {
		n += max(1, (columns+width-1)/width)
	}
	return n
}
