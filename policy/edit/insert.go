// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// Entry is a rule or a service that is added.
type Entry struct {
	Keys   []string // KEY: VALUE, in the order of the text
	Text   string   // the entry in one line, in place of Keys
	Above  string   // a comment in a line of its own above the entry, without the #; "": none
	Behind string   // a comment behind the entry; "": none
}

// Line returns the entry in one line, as an item of a list in brackets.
func (e Entry) Line() string { return cmp.Or(e.Text, "{"+strings.Join(e.Keys, ", ")+"}") }

// Last is the place behind all items of a list.
const Last = -1

// LayoutError says that a list has a layout which cannot be edited without a change of other parts.
type LayoutError struct {
	List string
	Line int    // of the list, from 1; 0: the list is not in the text
	Do   string // the edit to make by hand
}

func (e *LayoutError) Error() string {
	where := ""
	if e.Line > 0 {
		where = fmt.Sprintf("line %d: ", e.Line)
	}
	return fmt.Sprintf("%sthe layout of %s does not allow this edit without a change of other lines", where, e.List)
}

// Hint returns the remedy.
func (e *LayoutError) Hint() string { return e.Do }

// Insert adds an entry before the item of a list with an index, or behind all items. A list that the policy does not have is added.
func Insert(src []byte, name string, at int, e Entry) ([]byte, error) {
	d, err := parse(src)
	if err != nil {
		return nil, err
	}
	list, pair := d.list(name)
	items := d.items(name)
	if at == Last {
		at = len(items)
	}
	wrong := &LayoutError{List: name, Do: fmt.Sprintf("add this entry by hand: %s", e.Line())}
	if pair != nil {
		wrong.Line = pair.Pos.Line
	}
	entry, mistakes := yamltree.Read([]byte(e.Line()))
	if len(mistakes) > 0 {
		return nil, wording.WithHint(fmt.Errorf("the new entry %s: %s", e.Line(), mistakes[0].Msg), mistakes[0].Hint)
	}
	var pieces []piece
	switch {
	case d.root.Kind != yamltree.Mapping || d.root.Flow:
	case list == nil:
		pieces = d.newList(name, e)
	case list.Flow:
		pieces = d.insertFlow(list, at, e)
	default:
		pieces = d.insertBlock(list, pair, at, e)
	}
	if pieces == nil {
		return nil, wrong
	}
	out := d.changed(pieces...)
	after, err := parse(out)
	if err != nil || after.differs(d, name, slices.Insert(slices.Clone(items), at, entry)) {
		return nil, wrong
	}
	return out, nil
}

// entryLines returns the lines of an entry in a list with dashes in the column indent, each with a line end. An entry in block style has a line for
// each key.
func (d *document) entryLines(e Entry, indent int, block bool) string {
	margin := strings.Repeat(" ", indent)
	text := ""
	if e.Above != "" {
		text = margin + "# " + e.Above + d.newline
	}
	list := []string{e.Line()}
	if block && e.Text == "" {
		list = e.Keys
	}
	for i, line := range list {
		mark, end := "- ", ""
		if i > 0 {
			mark = "  "
		} else if e.Behind != "" {
			end = "  # " + e.Behind
		}
		text += margin + mark + line + end + d.newline
	}
	return text
}

// put adds whole lines before the line with an index. If the text does not end with a line end, it does not afterwards either.
func (d *document) put(before int, text string) []piece {
	at := d.starts[before]
	if last := d.line(before - 1); before == d.lines() && last != "" && ending(last) == "" {
		text = d.newline + strings.TrimSuffix(text, d.newline)
	}
	return []piece{{at, at, text}}
}

// newList adds a key with one entry: rules before services, and services at the end.
func (d *document) newList(name string, e Entry) []piece {
	at := d.lines()
	if services := d.root.Entry(Services); name == Rules && services != nil {
		at = d.comments(services.Pos.Line-1, services.Pos.Col-1)
	}
	indent := d.root.Pos.Col - 1
	return d.put(at, strings.Repeat(" ", indent)+name+":"+d.newline+d.entryLines(e, indent+2, false))
}

// comments returns the first of the lines with comments directly above a line. The comments have the same indentation as the line.
func (d *document) comments(line, indent int) int {
	for line > 0 && strings.HasPrefix(d.line(line-1), strings.Repeat(" ", indent)+"#") {
		line--
	}
	return line
}

// insertBlock adds an entry to a list with dashes, in the style of the item before it. If the list is empty, the dash is in the column of the key:
// Remove then knows that the key was there before.
func (d *document) insertBlock(list *yamltree.Node, pair *yamltree.Pair, at int, e Entry) []piece {
	if len(list.Items) == 0 {
		key := d.offset(pair.Pos) + len(pair.Key)
		if list.Kind != yamltree.Nothing || !d.has(key, ':') || d.rest(key+1) != "" {
			return nil
		}
		return d.put(pair.Pos.Line, d.entryLines(e, pair.Pos.Col-1, false))
	}
	like := max(at-1, 0)
	first, end, indent, ok := d.block(list, like)
	if !ok || list.Kind != yamltree.List {
		return nil
	}
	style := list.Items[like]
	text := d.entryLines(e, indent, style.Kind == yamltree.Mapping && !style.Flow)
	if at == 0 {
		return d.put(d.comments(first, indent), text)
	}
	if at < len(list.Items) { // comments above the next item are about that item
		if end, _, indent, ok = d.block(list, at); !ok {
			return nil
		}
		end = d.comments(end, indent)
	}
	return d.put(end, text)
}

// insertFlow adds an entry to a list in brackets. An item that begins a line gets lines of its own.
func (d *document) insertFlow(list *yamltree.Node, at int, e Entry) []piece {
	if e.Above != "" || e.Behind != "" {
		return nil
	}
	if len(list.Items) == 0 {
		open := d.offset(list.Pos) + 1
		return []piece{{open, open, e.Line()}}
	}
	if at < len(list.Items) {
		from := d.offset(list.Spans[at].From)
		gap := " "
		if d.begins(from) {
			gap = d.newline + d.text[d.starts[d.lineOf(from)]:from]
		}
		return []piece{{from, from, e.Line() + "," + gap}}
	}
	item, ok := d.flow(list, at-1)
	switch {
	case !ok:
		return nil
	case item.own && item.comma:
		return []piece{{item.line, item.line, item.margin + e.Line() + "," + d.newline}}
	case item.own:
		return []piece{{item.to, item.to, ","}, {item.line, item.line, item.margin + e.Line() + d.newline}}
	case item.comma:
		return []piece{{item.end, item.end, " " + e.Line() + ","}}
	}
	return []piece{{item.to, item.to, ", " + e.Line()}}
}

// flowItem is the place of an item in brackets.
type flowItem struct {
	from, to int    // offsets of the item
	end      int    // offset behind its comma, or behind the item if it has none
	line     int    // offset of the line that follows
	comma    bool   // a comma follows it
	own      bool   // it has its lines for itself, apart from comments
	margin   string // the blanks before it
}

func (d *document) flow(list *yamltree.Node, i int) (f flowItem, ok bool) {
	f.from = d.offset(list.Spans[i].From)
	if to := list.Spans[i].To; to.Line > 0 {
		f.to = d.offset(to)
	} else if f.to, ok = d.wordEnd(list.Items[i]); !ok {
		return f, false
	}
	f.end = f.to
	if next := d.next(f.to); d.has(next, ',') {
		f.comma, f.end = true, next+1
	}
	f.line = d.starts[d.lineOf(f.end)+1]
	f.margin = d.text[d.starts[d.lineOf(f.from)]:f.from]
	f.own = d.begins(f.from) && d.rest(f.end) == "" && ending(d.text[:f.line]) != ""
	return f, true
}
