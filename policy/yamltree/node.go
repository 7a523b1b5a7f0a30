// SPDX-License-Identifier: Apache-2.0

package yamltree

import (
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Kind is the kind of a node. Numbers and booleans are words: YAML's implicit types are not used, so that `no`, `0x10`
// and 1_000 reach the parser of the policy as written.
type Kind uint8

// The kinds of nodes.
const (
	Word Kind = iota
	List
	Mapping
	Nothing // no value, or null
	Broken  // could not be parsed; the mistake has been reported
)

var kindNames = []string{
	Word: "a single value", List: "a list", Mapping: "a mapping", Nothing: "nothing", Broken: "nothing",
}

// String returns the name of k, for messages.
func (k Kind) String() string { return kindNames[k] }

// Node is a value in the file. An alias is resolved to the node to which it refers.
type Node struct {
	Pos     Pos
	Kind    Kind
	Flow    bool   // a list in [] or a mapping in {}
	Quoted  bool   // a word in quotes
	Lacks   bool   // a mapping in which some keys are broken
	Partial bool   // a list or mapping with a broken node at any depth in it
	Text    string // of a word
	Items   []*Node
	Pairs   []Pair
	Spans   []Span // of a list: the places of its items
}

// Span is the place of an item of a list in the file. In a list in brackets, or of a mapping in braces, it ends behind the last character. The end of
// any other item is not known, and To is zero. For an alias, the place is that of the alias, and not that of the value to which it refers.
type Span struct{ From, To Pos }

// Pair is a key of a mapping with its value.
type Pair struct {
	Pos   Pos // of the key
	Key   string
	Value *Node
}

// String describes n, for messages.
func (n *Node) String() string {
	if n.Kind == Word {
		return wording.Quote(n.Text)
	}
	return n.Kind.String()
}

// Whole reports whether n and all nodes in it could be parsed. Read returns a mistake for each part that could not.
func (n *Node) Whole() bool { return n.Kind != Broken && !n.Partial }

// Get returns the value of key in n, or nil.
func (n *Node) Get(key string) *Node {
	if e := n.Entry(key); e != nil {
		return e.Value
	}
	return nil
}

// Entry returns the pair of key in n, or nil.
func (n *Node) Entry(key string) *Pair {
	for i := range n.Pairs {
		if n.Pairs[i].Key == key {
			return &n.Pairs[i]
		}
	}
	return nil
}

// Words returns the words of n: n itself, or the words in its list. A mapping counts as a word. A nil node has none.
func (n *Node) Words() []*Node {
	switch {
	case n == nil:
		return nil
	case n.Kind == Word || n.Kind == Mapping:
		return []*Node{n}
	}
	var ws []*Node
	for _, item := range n.Items {
		if item.Kind == Word {
			ws = append(ws, item)
		}
	}
	return ws
}

// converter turns the YAML library's tree into nodes.
type converter struct {
	*report
	anchors map[string]*Node
}

func position(t *token.Token) Pos {
	if t == nil || t.Position == nil {
		return Pos{1, 1}
	}
	return Pos{max(1, t.Position.Line), max(1, t.Position.Column)}
}

func (c *converter) node(y ast.Node) *Node {
	switch y := y.(type) {
	case *ast.MappingNode:
		return c.mapping(y)
	case *ast.MappingValueNode:
		return c.mapping(ast.Mapping(y.GetToken(), false, y))
	case *ast.SequenceNode:
		return c.list(y)
	case *ast.AnchorNode:
		return c.anchor(y)
	case *ast.AliasNode:
		return c.alias(y)
	case *ast.TagNode:
		c.errorf(position(y.GetToken()), "YAML tags are not supported, got %s", wording.Quote(colons(y.GetToken().Value))).
			Hint = "write the value without it"
		return &Node{Pos: position(y.GetToken()), Kind: Broken}
	case *ast.LiteralNode:
		return &Node{Pos: position(y.GetToken()), Quoted: true, Text: colons(y.Value.Value)}
	case ast.ScalarNode:
		return scalar(y.GetToken())
	}
	return &Node{Pos: Pos{1, 1}, Kind: Nothing}
}

func scalar(t *token.Token) *Node {
	n := &Node{Pos: position(t), Text: colons(t.Value)}
	switch t.Type {
	case token.NullType, token.ImplicitNullType:
		n.Kind = Nothing
	case token.SingleQuoteType, token.DoubleQuoteType:
		n.Quoted = true
	}
	return n
}

func (c *converter) list(y *ast.SequenceNode) *Node {
	n := &Node{Pos: position(y.GetToken()), Kind: List, Flow: y.IsFlowStyle}
	for i, v := range y.Values {
		span := Span{position(v.GetToken()), end(v)}
		if !y.IsFlowStyle && i < len(y.Entries) {
			span.From = position(y.Entries[i].Start) // the dash
		}
		n.Spans = append(n.Spans, span)
		item := c.node(v)
		n.Items = append(n.Items, item)
		n.Partial = n.Partial || !item.Whole()
	}
	return n
}

// end returns the place behind a mapping in braces or an alias. It returns the zero Pos for all other values.
func end(y ast.Node) Pos {
	switch y := y.(type) {
	case *ast.MappingNode:
		if y.IsFlowStyle && y.End != nil {
			at := position(y.End)
			return Pos{at.Line, at.Col + 1}
		}
	case *ast.AliasNode:
		at := position(y.GetToken())
		return Pos{at.Line, at.Col + 1 + utf8.RuneCountInString(y.Value.GetToken().Value)}
	case *ast.AnchorNode:
		return end(y.Value)
	}
	return Pos{}
}

// mapping converts a mapping. A block mapping gets the position of its first key, where a person looks for it.
func (c *converter) mapping(y *ast.MappingNode) *Node {
	n := &Node{Pos: position(y.GetToken()), Kind: Mapping, Flow: y.IsFlowStyle}
	for i, v := range y.Values {
		key := c.key(v.Key)
		if i == 0 && !n.Flow {
			n.Pos = key.Pos
		}
		if key.Kind != Word {
			n.Lacks, n.Partial = true, true
			continue
		}
		value := c.node(v.Value)
		if value.Kind == Nothing {
			value = &Node{Pos: key.Pos, Kind: Nothing}
		}
		n.Pairs = append(n.Pairs, Pair{key.Pos, key.Text, value})
		n.Partial = n.Partial || !value.Whole()
	}
	return n
}

// key converts a key, which must be a word. It reports a key of another kind, and returns it as broken.
func (c *converter) key(y ast.Node) *Node {
	if explicit, ok := y.(*ast.MappingKeyNode); ok {
		y = explicit.Value
	}
	if y == nil {
		return &Node{Pos: Pos{1, 1}, Kind: Broken}
	}
	at := position(y.GetToken())
	switch y := y.(type) {
	case *ast.MergeKeyNode:
		c.errorf(at, "YAML merge keys are not supported").Hint = "write the keys out, or give the whole mapping by an alias"
	case *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
		c.errorf(at, "a key must be a plain word")
	case ast.ScalarNode:
		return &Node{Pos: at, Text: colons(y.GetToken().Value)}
	default:
		c.errorf(at, "a key must be a plain word")
	}
	return &Node{Pos: at, Kind: Broken}
}

// anchor converts the value before it registers the anchor's name, so that no node can contain itself.
func (c *converter) anchor(y *ast.AnchorNode) *Node {
	n := c.node(y.Value)
	c.anchors[y.Name.GetToken().Value] = n
	return n
}

func (c *converter) alias(y *ast.AliasNode) *Node {
	at, name := position(y.GetToken()), y.Value.GetToken().Value
	if n, ok := c.anchors[name]; ok {
		return n
	}
	name = colons(name)
	e := c.errorf(at, "alias *%s names no anchor that stands before it", name)
	e.Hint = "declare it with &" + name + " in front of a value; a set is named by $" + name + ", and text that begins with * needs quotes"
	return &Node{Pos: at, Kind: Broken}
}
