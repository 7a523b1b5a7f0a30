// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// The lists of a policy that can be edited.
const (
	Rules    = "rules"
	Services = "services"
)

// document is a text with its values and the places of its lines.
type document struct {
	mark    string // byte order mark, or ""
	text    string // without the mark
	starts  []int  // offsets of the lines; the last one is the length of the text
	newline string // the line end of the first line
	root    *yamltree.Node
}

func parse(src []byte) (*document, error) {
	root, mistakes := yamltree.Read(src)
	if len(mistakes) > 0 {
		m := mistakes[0]
		return nil, wording.WithHint(fmt.Errorf("line %d, column %d: %s", m.Pos.Line, m.Pos.Col, m.Msg), m.Hint)
	}
	d := &document{root: root, newline: "\n"}
	var marked bool
	if d.text, marked = strings.CutPrefix(string(src), "\ufeff"); marked {
		d.mark = "\ufeff"
	}
	d.starts = []int{0}
	for i := 0; i < len(d.text); i++ {
		switch {
		case strings.HasPrefix(d.text[i:], "\r\n"):
			i++
		case d.text[i] != '\n' && d.text[i] != '\r':
			continue
		}
		d.starts = append(d.starts, i+1)
	}
	if d.starts[len(d.starts)-1] < len(d.text) {
		d.starts = append(d.starts, len(d.text))
	}
	if first := d.line(0); d.lines() > 0 && ending(first) != "" {
		d.newline = ending(first)
	}
	return d, nil
}

// lines returns the number of lines. A line without a line end at the end of the text counts.
func (d *document) lines() int { return len(d.starts) - 1 }

// line returns a line with its line end. The first line has the index 0. Behind the last line it returns "".
func (d *document) line(i int) string {
	if i < 0 || i >= d.lines() {
		return ""
	}
	return d.text[d.starts[i]:d.starts[i+1]]
}

// ending returns the line end of a line, "" if it has none.
func ending(line string) string { return line[len(strings.TrimRight(line, "\r\n")):] }

// offset returns the offset of a place in the text.
func (d *document) offset(at yamltree.Pos) int {
	offset, line := d.starts[min(at.Line, d.lines())-1], d.line(at.Line-1)
	for range at.Col - 1 {
		_, size := utf8.DecodeRuneInString(line)
		offset, line = offset+size, line[size:]
	}
	return offset
}

// begins reports whether only blanks precede an offset in its line.
func (d *document) begins(offset int) bool {
	return strings.TrimLeft(d.text[d.starts[d.lineOf(offset)]:offset], " \t") == ""
}

// lineOf returns the index of the line with an offset.
func (d *document) lineOf(offset int) int {
	i, found := slices.BinarySearch(d.starts[:d.lines()], offset)
	if !found {
		i--
	}
	return i
}

// rest returns the text from an offset to the end of its line, without blanks, a comment and the line end.
func (d *document) rest(offset int) string {
	return uncommented(d.text[offset:d.starts[d.lineOf(offset)+1]])
}

func uncommented(text string) string {
	if text = strings.TrimSpace(text); strings.HasPrefix(text, "#") {
		return ""
	}
	return text
}

// next returns the offset of the first character from an offset on that is neither a blank, nor a line end, nor in a comment.
func (d *document) next(offset int) int {
	for offset < len(d.text) {
		switch c := d.text[offset]; {
		case c == '#':
			offset = d.starts[d.lineOf(offset)+1]
		case strings.IndexByte(" \t\r\n", c) >= 0:
			offset++
		default:
			return offset
		}
	}
	return offset
}

// has reports whether the text has a character at an offset.
func (d *document) has(offset int, c byte) bool { return offset < len(d.text) && d.text[offset] == c }

// piece is a change of the text: the bytes from From to To become Text.
type piece struct {
	from, to int
	text     string
}

// changed returns the text with the pieces, which are in the order of their places, and without an overlap.
func (d *document) changed(pieces ...piece) []byte {
	out, at := d.mark, 0
	for _, p := range pieces {
		out += d.text[at:p.from] + p.text
		at = p.to
	}
	return []byte(out + d.text[at:])
}

// list returns the node of a list, and the pair that has it. The node is nil if the policy does not have the key.
func (d *document) list(name string) (*yamltree.Node, *yamltree.Pair) {
	pair := d.root.Entry(name)
	if pair == nil {
		return nil, nil
	}
	return pair.Value, pair
}

// block returns the first line of an item of a list with dashes, the line behind it, and the column of the dash, all from 0. ok is false if the
// item does not begin with a dash in a line of its own.
//
// A line behind the dash belongs to the item if it is indented further. Blank lines and comments belong to it only if such a line follows.
func (d *document) block(list *yamltree.Node, i int) (first, end, indent int, ok bool) {
	span := list.Spans[i]
	at := d.offset(span.From)
	first, indent = span.From.Line-1, span.From.Col-1
	if !d.has(at, '-') || d.text[d.starts[first]:at] != strings.Repeat(" ", indent) {
		return 0, 0, 0, false
	}
	end = max(first+1, span.To.Line)
	if span.To.Line > 0 {
		return first, end, indent, true
	}
	for n := end; n < d.lines(); n++ {
		line := d.line(n)
		switch {
		case uncommented(line) == "":
		case strings.HasPrefix(line, strings.Repeat(" ", indent+1)):
			end = n + 1
		default:
			return first, end, indent, true
		}
	}
	return first, end, indent, true
}

// same reports whether two values are equal, apart from their places and their style.
func same(a, b *yamltree.Node) bool {
	return a.Kind == b.Kind && a.Text == b.Text && slices.EqualFunc(a.Items, b.Items, same) &&
		slices.EqualFunc(a.Pairs, b.Pairs, func(p, q yamltree.Pair) bool { return p.Key == q.Key && same(p.Value, q.Value) })
}

// others returns the pairs of a mapping without one key.
func others(root *yamltree.Node, key string) *yamltree.Node {
	rest := *root
	rest.Pairs = slices.DeleteFunc(slices.Clone(root.Pairs), func(p yamltree.Pair) bool { return p.Key == key })
	return &rest
}

// items returns the items of a list of the document.
func (d *document) items(name string) []*yamltree.Node {
	if list, _ := d.list(name); list != nil {
		return list.Items
	}
	return nil
}

// differs reports whether the document differs from another one in more than the items of a list, which must be these.
func (d *document) differs(from *document, name string, items []*yamltree.Node) bool {
	return !same(others(d.root, name), others(from.root, name)) || !slices.EqualFunc(d.items(name), items, same)
}
