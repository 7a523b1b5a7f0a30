// SPDX-License-Identifier: Apache-2.0

package demo

import "strings"

// style is a style of text on a terminal. Its value is a parameter of SGR (ECMA-48, section 8.3.117).
type style string

const (
	bold  style = "1"
	faint style = "2"
	red   style = "31"
	green style = "32"
)

func (s style) render(text string) string { return "\x1b[" + string(s) + "m" + text + "\x1b[m" }

// columns returns the width of text that may contain styles. Each other character takes one column.
func columns(text string) (n int) {
	eachRune(text, func(_ rune, shown bool) {
		if shown {
			n++
		}
	})
	return n
}

// clip shortens text to a width. It keeps all styles in the text.
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

// eachRune calls f for each rune of text. The parameter shown is false for runes that belong to a style.
func eachRune(text string, f func(r rune, shown bool)) {
	inStyle := false
	for _, r := range text {
		inStyle = inStyle || r == '\x1b'
		f(r, !inStyle)
		inStyle = inStyle && r != 'm'
	}
}

// wrap breaks text between words into lines. A line has at most the given width.
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
