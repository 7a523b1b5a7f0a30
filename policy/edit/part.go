// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/policy/yamltree"
)

// Part is an item of a list in an entry, such as a port or an address. A value that is not a list is its only item.
type Part struct {
	Key  string // such as port
	Item int    // from 0
}

// Words returns the items of a key of an entry. It returns nil if the entry does not have the key, or if an item is more than a word.
func Words(src []byte, name string, index int, key string) (list []string) {
	d, err := parse(src)
	if err != nil {
		return nil
	}
	value, _ := d.value(name, index, key)
	if value == nil {
		return nil
	}
	for _, item := range itemsOf(value) {
		if item.Kind != yamltree.Word {
			return nil
		}
		list = append(list, item.Text)
	}
	return list
}

// Shrink replaces an item in an entry by words. Without words it removes the item, which must not be the only one.
func Shrink(src []byte, name string, index int, part Part, words []string) ([]byte, error) {
	d, err := parse(src)
	if err != nil {
		return nil, err
	}
	value, pair := d.value(name, index, part.Key)
	if value == nil || part.Item < 0 || part.Item >= len(itemsOf(value)) {
		return nil, fmt.Errorf("item %d of %s has no item %d of %s", index+1, name, part.Item+1, part.Key)
	}
	old := itemsOf(value)
	wrong := &LayoutError{List: part.Key, Line: value.Pos.Line,
		Do: fmt.Sprintf("edit the %s %s by hand: %s", part.Key, old[part.Item].Text, strings.Join(words, ", "))}
	var pieces []piece
	switch {
	case len(words) > 0:
		pieces = d.replaceItem(value, part.Item, words)
	case value.Kind != yamltree.List || len(old) == 1:
		return nil, fmt.Errorf("%s would have no item", part.Key)
	case value.Flow:
		wrong.Do = fmt.Sprintf("remove %s of %s by hand", old[part.Item].Text, part.Key)
		pieces = d.removeFlow(value, part.Item)
	default:
		wrong.Do = fmt.Sprintf("remove %s of %s by hand", old[part.Item].Text, part.Key)
		pieces = d.removeBlock(value, pair, part.Item)
	}
	if pieces == nil {
		return nil, wrong
	}
	out := d.changed(pieces...)
	after, err := parse(out)
	if err != nil {
		return nil, wrong
	}
	got, _ := after.value(name, index, part.Key)
	want := slices.Clone(old[:part.Item])
	for _, w := range words {
		want = append(want, &yamltree.Node{Kind: yamltree.Word, Text: w})
	}
	want = append(want, old[part.Item+1:]...)
	if got == nil || !slices.EqualFunc(itemsOf(got), want, same) {
		return nil, wrong
	}
	if after.differs(d, name, slices.Insert(slices.Delete(slices.Clone(d.items(name)), index, index+1), index, with(d.items(name)[index], part.Key, got))) {
		return nil, wrong // an anchor, whose value stands elsewhere, too
	}
	return out, nil
}

// with returns a mapping with another value of a key.
func with(entry *yamltree.Node, key string, value *yamltree.Node) *yamltree.Node {
	other := *entry
	other.Pairs = slices.Clone(entry.Pairs)
	for i := range other.Pairs {
		if other.Pairs[i].Key == key {
			other.Pairs[i].Value = value
		}
	}
	return &other
}

// value returns the value of a key of an entry, and the pair that has it. The value is nil if there is none.
func (d *document) value(name string, index int, key string) (*yamltree.Node, *yamltree.Pair) {
	items := d.items(name)
	if index < 0 || index >= len(items) || items[index].Kind != yamltree.Mapping {
		return nil, nil
	}
	pair := items[index].Entry(key)
	if pair == nil {
		return nil, nil
	}
	return pair.Value, pair
}

// itemsOf returns the items of a list, or the value itself.
func itemsOf(value *yamltree.Node) []*yamltree.Node {
	if value.Kind == yamltree.List {
		return value.Items
	}
	return []*yamltree.Node{value}
}

// replaceItem replaces an item, or a value that is not a list, by words in its line.
func (d *document) replaceItem(value *yamltree.Node, i int, words []string) []piece {
	text := strings.Join(words, ", ")
	item := itemsOf(value)[i]
	if value.Kind != yamltree.List {
		if len(words) > 1 {
			text = "[" + text + "]"
		}
	} else if !value.Flow {
		_, _, indent, ok := d.block(value, i)
		if !ok {
			return nil
		}
		text = strings.Join(words, d.newline+strings.Repeat(" ", indent)+"- ")
	}
	from := d.offset(item.Pos)
	to, ok := d.wordEnd(item)
	if !ok {
		return nil
	}
	return []piece{{from, to, text}}
}

// wordEnd returns the offset behind a word. ok is false unless the text has the word as it is, perhaps in quotes.
func (d *document) wordEnd(n *yamltree.Node) (offset int, ok bool) {
	if n.Kind != yamltree.Word {
		return 0, false
	}
	at, quote := d.offset(n.Pos), ""
	if n.Quoted && (d.has(at, '"') || d.has(at, '\'')) {
		quote = d.text[at : at+1]
	}
	as := quote + n.Text + quote
	return at + len(as), strings.HasPrefix(d.text[at:], as)
}
