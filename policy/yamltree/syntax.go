// SPDX-License-Identifier: Apache-2.0

package yamltree

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/token"
)

// syntaxHints has messages and hints that replace messages of the YAML library. A message is recognized by a part of its text. The table has the
// messages that new users often get. All other messages stay as they are.
var syntaxHints = []struct{ part, msg, hint string }{
	{"cannot start any token", "a tab cannot indent YAML", "indent with spaces"},
	{"tab character", "a tab cannot indent YAML", "indent with spaces"},
	{"',' or ']' must be", "the list that [ opens in line LINE is not closed", closeList},
	{"sequence end token", "this list is not closed", "close it with ]"},
	{"',' or '}' must be", "the mapping that { opens in line LINE is not closed", closeMapping},
	{"flow mapping end token", "this mapping is not closed", "close it with }"},
	{"end character of", "this quoted text has no closing quote", "add the quote, and mind that \\ escapes in \"…\""},
	{"invalid header option", "a | begins a text of several lines", "put quotes around the value, as in \"|de ad|\""},
	{"reserved character", "", "put the value in quotes"},
	{"mapping value is not allowed", "a second \": \" in one value", "quote the value, or begin a new line"},
	{"pre-defined", "text after a value that is complete", "put quotes around the whole value, or remove the rest"},
	{"value is not allowed in this", "this line is not indented like those it belongs to", sameColumn},
	{"non-map value", "a key without a value", writeKey},
	{"unexpected key name", "a key without a value", writeKey},
	{"invalid key", "a key must be a plain word", writeKey},
	{"block sequence entries", "a list with - cannot begin in the line of its key", "write [a, b]"},
	{"directive", "% begins no value", "put the value in quotes"},
	{"unexpected scalar value", "a value is missing before this", "remove the comma that is too much"},
	{"but found ','", "a value is missing before this", "remove the comma that is too much"},
}

const (
	writeKey     = "write key: value, with a colon and a space"
	closeList    = "close it with ], or put a comma between its values"
	closeMapping = "close it with }, or put a comma between its keys"
	sameColumn   = "give all keys of a mapping, and all - of a list, the same column"
)

// syntaxError reports the mistake that the YAML library has found. The library finds only one.
func syntaxError(r *report, err error) {
	var se *yaml.SyntaxError
	if !errors.As(err, &se) || se.Token == nil {
		r.errorf(Pos{1, 1}, "YAML: %s", oneLine(err.Error()))
		return
	}
	e := r.errorf(position(se.Token), "YAML: %s", oneLine(se.Message))
	switch t := se.Token; {
	case t.Type == token.AliasType, t.Prev != nil && t.Prev.Type == token.AliasType:
		e.Msg = "YAML: * alone names nothing"
		e.Hint = "for all addresses leave the key out; elsewhere put the value in quotes"
		return
	case tagInLine(t):
		e.Msg, e.Hint = "YAML: a ! begins a YAML tag", "put the value in quotes; keys that must not hold stand under not"
		return
	case t.Value == "}", t.Value == "]":
		e.Msg, e.Hint = fmt.Sprintf("YAML: this %s closes nothing", t.Value), "remove it, or add what it shall close"
		return
	}
	for _, h := range syntaxHints {
		if strings.Contains(se.Message, h.part) {
			e.Hint = h.hint
			if h.msg != "" {
				e.Msg = "YAML: " + strings.Replace(h.msg, "LINE", strconv.Itoa(openedIn(se.Token)), 1)
			}
			return
		}
	}
}

func oneLine(text string) string { return colons(strings.Join(strings.Fields(text), " ")) }

// openedIn returns the line of the innermost bracket that is open at t.
func openedIn(t *token.Token) int {
	depth := 0
	for before := t.Prev; before != nil; before = before.Prev {
		switch before.Type {
		case token.SequenceEndType, token.MappingEndType:
			depth++
		case token.SequenceStartType, token.MappingStartType:
			if depth == 0 {
				return position(before).Line
			}
			depth--
		}
	}
	return position(t).Line
}

// tagInLine reports whether the line of t has a tag. The library reads a bracket behind a tag as part of the tag, and
// then reports a mistake somewhere else.
func tagInLine(t *token.Token) bool {
	line := position(t).Line
	for t.Prev != nil && position(t.Prev).Line == line {
		t = t.Prev
	}
	for ; t != nil && position(t).Line == line; t = t.Next {
		if t.Type == token.TagType {
			return true
		}
	}
	return false
}
