package demo

import "strings"

// style is how text looks on a terminal: the parameter of SGR, ECMA-48 section 8.3.117.
type style string

const (
	bold  style = "1"
	faint style = "2"
	red   style = "31"
	green style = "32"
)

func (s style) render(text string) string { return "\x1b[" + string(s) + "m" + text + "\x1b[m" }

// columns is how wide text is with its styles. All its characters have one column.
func columns(text string) (n int) {
	eachRune(text, func(_ rune, shown bool) {
		if shown {
			n++
		}
	})
	return n
}

// clip cuts text off after so many columns, and keeps all its styles.
func clip(text string, width int) string {
	var out strings.Builder
	n := 0
	eachRune(text, func(r rune, shown bool) {
		if shown {
			n++
		}
		if !shown || n <= width {
			out.WriteRune(r)
		}
	})
	return out.String()
}

// eachRune calls f for each rune of text, and tells whether it has a column or is a part of a style.
func eachRune(text string, f func(r rune, shown bool)) {
	inStyle := false
	for _, r := range text {
		inStyle = inStyle || r == '\x1b'
		f(r, !inStyle)
		inStyle = inStyle && r != 'm'
	}
}

// wrap breaks text between words into lines of at most so many columns.
func wrap(text string, width int) string {
	var out strings.Builder
	n := 0
	for _, word := range strings.Fields(text) {
		switch {
		case n == 0:
		case n+1+columns(word) > width:
			out.WriteString("\n")
			n = 0
		default:
			out.WriteString(" ")
			n++
		}
		out.WriteString(word)
		n += columns(word)
	}
	return out.String() + "\n"
}
