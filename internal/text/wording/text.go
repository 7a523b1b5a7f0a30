// SPDX-License-Identifier: Apache-2.0

// This file has parts of messages about words in a user's input: quotes, enumerations, and removal of control characters.

package wording

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain replaces each control character, including tabs, by U+FFFD. It is for text from other sources within a message.
func Plain(text string) string {
	return strings.ReplaceAll(Printable(text), "\t", string(unicode.ReplacementChar))
}

// Printable replaces each control character except tabs by U+FFFD, so that a terminal can show the text safely.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Quote returns text in quotes on one line. A long text is truncated.
func Quote(text string) string {
	const most = 80
	if utf8.RuneCountInString(text) <= most {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q…", string([]rune(text)[:most]))
}

// Either returns words as an enumeration: `a, b or c`.
func Either(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

var plainWord = Regexp(`^[\w/.,:@%+=][\w/.,:@%+=-]*$`)

// Shell quotes a word for a shell, if it needs quotes.
func Shell(word string) string {
	if plainWord().MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
