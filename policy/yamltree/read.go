// SPDX-License-Identifier: Apache-2.0

package yamltree

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits on the nesting of a file. The YAML library's parser recurses, and Go cannot recover from a stack overflow. A policy is four levels deep.
const (
	maxFlowDepth   = 32
	maxBlockColumn = 400 // of a `-` or `?`: each level of nesting takes a column at least
)

// Read parses src as one YAML document. If the document cannot be parsed, the node is nil, and the mistakes have the reason. If only parts of it
// cannot be parsed, Read returns the node and a mistake for each such part. The kind of such a part is Broken.
func Read(src []byte) (*Node, []*Mistake) {
	var r report
	doc := document(&r, src)
	return doc, r.mistakes
}

// document parses src like Read, and adds the mistakes to r.
func document(r *report, src []byte) *Node {
	text, ok := clean(r, src)
	if !ok {
		return nil
	}
	tokens := lexer.Tokenize(text)
	if t := tooDeep(tokens); t != nil {
		r.errorf(position(t), "nested too deeply").Hint = "a policy is a mapping of lists of mappings of lists, no more"
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		syntaxError(r, err)
		return nil
	}
	return single(r, file)
}

// innerColon replaces a colon inside a word while the YAML library parses the text. The library takes any colon in a
// mapping in {} for the end of a key, even inside a list, and so splits {from: [2001:db8::1]}. In YAML a colon ends a
// key only in front of a blank or a flow indicator, or behind a quoted key (YAML 1.2.2, 7.3.3). Read deviates from YAML
// in one case: a colon behind a colon is always part of the word, so that 2001:db8:: needs no quotes. The rune is a
// noncharacter of Unicode, one column wide as the colon is, and no text may contain it.
const innerColon = '\ufdd0'

// hideColons replaces each colon inside a word by innerColon.
func hideColons(text string) string {
	var b strings.Builder
	for i, r := range text {
		if r == ':' && isInner(text, i) {
			r = innerColon
		}
		b.WriteRune(r)
	}
	return b.String()
}

// isInner reports whether the colon at text[i] is part of a word.
func isInner(text string, i int) bool {
	before, after := " ", " "
	if i > 0 {
		before = text[i-1 : i]
	}
	if i+1 < len(text) {
		after = text[i+1 : i+2]
	}
	return before == ":" || !strings.Contains(" \t\n,[]{}", after) && !strings.Contains("\"']}", before)
}

// colons restores the colons that hideColons has replaced.
func colons(text string) string { return strings.ReplaceAll(text, string(innerColon), ":") }

// clean converts src to a form in which the YAML library counts lines correctly: without byte order mark, and with line feeds only. If src has bytes
// that a text editor does not show, clean reports them and returns false.
func clean(r *report, src []byte) (string, bool) {
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(src))
	line, col := 1, 1
	for i, c := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case c == utf8.RuneError && size == 1:
			r.errorf(Pos{line, col}, "byte 0x%02x is not UTF-8", text[i]).Hint = "save the file as UTF-8"
			return "", false
		case c == '\n':
			line, col = line+1, 0
		case unicode.IsControl(c) && c != '\t', c == '\ufeff', c == innerColon:
			r.errorf(Pos{line, col}, "control character %U", c).Hint = "remove it"
			return "", false
		}
		col++
	}
	return hideColons(text), true
}

func tooDeep(tokens token.Tokens) *token.Token {
	depth := 0
	for _, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType:
			if t.Position.Column > maxBlockColumn {
				return t
			}
		}
		if depth > maxFlowDepth {
			return t
		}
	}
	return nil
}

// single returns the document of the file. It reports a mistake if the file has a second document.
func single(r *report, file *ast.File) *Node {
	c := converter{report: r, anchors: map[string]*Node{}}
	var doc *Node
	for _, d := range file.Docs {
		if d.Body == nil || d.Body.Type() == ast.DirectiveType {
			continue
		}
		if doc != nil {
			r.errorf(c.node(d.Body).Pos, "a policy is one YAML document, and here begins another").
				Hint = "remove the --- before it"
			return doc
		}
		doc = c.node(d.Body)
	}
	if doc == nil {
		r.errorf(Pos{1, 1}, "the policy is empty").Hint = "the shortest policy is: devices: [eth0]"
	}
	return doc
}
