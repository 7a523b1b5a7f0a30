// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// token is one word of a line. Its quotes and escapes are not resolved yet.
type token struct {
	text   string
	column int // of the first character, from 1
}

// errorf returns an error that contains the column of t.
func (t token) errorf(format string, args ...any) error {
	return fmt.Errorf("column %d: %w", t.column, fmt.Errorf(format, args...))
}

// tokenize splits a line at blanks outside of double quotes. A word that starts with # begins a comment, which ends at the end of the line. end is an
// empty token with the position behind the last word.
func tokenize(line string) (tokens []token, end token, err error) {
	end.column = 1
	for i := 0; i < len(line); {
		t := token{column: utf8.RuneCountInString(line[:i]) + 1}
		if line[i] == '#' {
			break
		}
		n, closed := wordLength(line[i:])
		if !closed {
			return nil, end, t.errorf("%s: the closing \" is missing", line[i:])
		}
		if t.text = line[i : i+n]; n > 0 {
			tokens = append(tokens, t)
			end.column = t.column + utf8.RuneCountInString(t.text) + 1
		}
		i += n + 1
	}
	return tokens, end, nil
}

// wordLength returns the length in bytes of the word at the start of line. closed is false if the word ends within quotes.
func wordLength(line string) (n int, closed bool) {
	quoted := false
	for n < len(line) {
		switch c := line[n]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted && n+1 < len(line):
			n++
		case !quoted && (c == ' ' || c == '\t' || c == '\r' || c == '\n'):
			return n, true
		}
		n++
	}
	return n, !quoted
}

// unquote returns the value of a Go string literal in double quotes. Other text is returned unchanged.
func unquote(text string) (string, error) {
	if len(text) == 0 || text[0] != '"' {
		return text, nil
	}
	s, err := strconv.Unquote(text)
	if err != nil {
		return "", fmt.Errorf("%s: want text in double quotes, with escapes as in Go (\\n, \\x00, \\\")", text)
	}
	return s, nil
}
