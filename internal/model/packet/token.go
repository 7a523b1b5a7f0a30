package packet

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// token is one word of a line, its quotes and escapes not yet resolved.
type token struct {
	text   string
	column int // of its first character, from 1
}

// errorf makes an error that names the place of t.
func (t token) errorf(format string, args ...any) error {
	return fmt.Errorf("column %d: %w", t.column, fmt.Errorf(format, args...))
}

// tokenize splits a line at blanks that stand outside of double quotes. A word that starts with # and all after it is a
// comment. end is the empty token at the place where more words could stand.
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

// wordLength is the length in bytes of the word that line starts with. closed is false when a quote is open at the end.
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

// unquote resolves a Go string literal in double quotes; other text stands for itself.
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
