// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/policy/yamltree"
)

// Remove removes the item of a list with an index. Comments in lines of their own stay. The key of the list goes with its last item if nothing else
// is in its line.
func Remove(src []byte, name string, index int) ([]byte, error) {
	d, err := parse(src)
	if err != nil {
		return nil, err
	}
	list, pair := d.list(name)
	items := d.items(name)
	if index < 0 || index >= len(items) {
		return nil, fmt.Errorf("%s has no item %d", name, index+1)
	}
	wrong := &LayoutError{List: name, Line: list.Spans[index].From.Line, Do: "remove the entry by hand"}
	var pieces []piece
	if list.Flow {
		pieces = d.removeFlow(list, index)
	} else {
		pieces = d.removeBlock(list, pair, index)
	}
	if pieces == nil {
		return nil, wrong
	}
	out := d.changed(pieces...)
	after, err := parse(out)
	if err != nil { // the entry may have an anchor to which another one refers
		wrong.Do = fmt.Sprintf("remove the entry by hand: without it, the policy has a mistake: %v", err)
	}
	if err != nil || after.differs(d, name, slices.Delete(slices.Clone(items), index, index+1)) {
		return nil, wrong
	}
	return out, nil
}

func (d *document) removeBlock(list *yamltree.Node, pair *yamltree.Pair, i int) []piece {
	first, end, indent, ok := d.block(list, i)
	if !ok {
		return nil
	}
	if key := pair.Pos; len(list.Items) == 1 && indent >= key.Col && first == key.Line &&
		strings.TrimRight(d.line(first-1), "\r\n") == strings.Repeat(" ", key.Col-1)+pair.Key+":" {
		first--
	}
	from, to := d.starts[first], d.starts[end]
	if to == len(d.text) && ending(d.text) == "" && from > 0 { // the line before becomes the last one
		from -= len(ending(d.line(first - 1)))
	}
	return []piece{{from, to, ""}}
}

func (d *document) removeFlow(list *yamltree.Node, i int) []piece {
	f, ok := d.flow(list, i)
	if !ok {
		return nil
	}
	lines := piece{d.starts[d.lineOf(f.from)], f.line, ""}
	last := i == len(list.Items)-1
	var before flowItem
	if i > 0 {
		if before, ok = d.flow(list, i-1); !ok {
			return nil
		}
	}
	switch {
	case len(list.Items) == 1:
		return []piece{{f.from, f.end, ""}}
	case f.own && (f.comma || !last):
		return []piece{lines}
	case f.own: // the comma of the item before it goes, too
		return []piece{{before.end - 1, before.end, ""}, lines}
	case !last:
		return []piece{{f.from, d.offset(list.Spans[i+1].From), ""}}
	case f.comma:
		return []piece{{before.end, f.end, ""}}
	}
	return []piece{{before.end - 1, f.to, ""}}
}
