// This file has parts of messages about words that people write: quotes, enumerations, and the known word that a misspelt one
// means.

package wording

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain is Printable without tabs: the text of others within a message.
func Plain(text string) string {
	return strings.ReplaceAll(Printable(text), "\t", string(unicode.ReplacementChar))
}

// Printable is text with U+FFFD for each control character except tabs, so that it can go to a terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Quote is text in quotes on one line, cut when it is long.
func Quote(text string) string {
	const most = 80
	if utf8.RuneCountInString(text) <= most {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q…", string([]rune(text)[:most]))
}

// Either joins words for reading: `a, b or c`.
func Either(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
