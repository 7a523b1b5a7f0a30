package policy

import (
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// kind is what a node of the file is. Numbers and booleans are words: YAML's guess at a type is not used, so that
// `no`, `0x10` and 1_000 reach the language as they are written.
type kind uint8

const (
	word kind = iota
	list
	mapping
	nothing // no value, or null
	broken  // not readable; reported already
)

var kindNames = []string{
	word: "a single value", list: "a list", mapping: "a mapping", nothing: "nothing", broken: "nothing",
}

func (k kind) String() string { return kindNames[k] }

// node is a value in the policy file. Aliases are resolved: they share the node that they name.
type node struct {
	pos     Pos
	kind    kind
	flow    bool   // a list in [] or a mapping in {}
	quoted  bool   // a word in quotes
	lacks   bool   // a mapping some of whose keys are broken
	partial bool   // a list or mapping with something broken in it, however deep
	text    string // of a word
	items   []*node
	pairs   []pair
}

// pair is a key of a mapping with its value.
type pair struct {
	pos   Pos
	key   string
	value *node
}

// whole reports whether n and all in it could be read. What could not has been reported before any key was looked at.
func (n *node) whole() bool { return n.kind != broken && !n.partial }

// get is the value of key in n, or nil.
func (n *node) get(key string) *node {
	if e := n.entry(key); e != nil {
		return e.value
	}
	return nil
}

// entry is the pair of key in n, or nil.
func (n *node) entry(key string) *pair {
	for i := range n.pairs {
		if n.pairs[i].key == key {
			return &n.pairs[i]
		}
	}
	return nil
}

// words are the words of n: itself, or those of its list. A mapping counts as one.
func (n *node) words() []*node {
	switch {
	case n == nil:
		return nil
	case n.kind == word || n.kind == mapping:
		return []*node{n}
	}
	var ws []*node
	for _, item := range n.items {
		if item.kind == word {
			ws = append(ws, item)
		}
	}
	return ws
}

// converter turns the YAML library's tree into nodes.
type converter struct {
	place
	anchors map[string]*node
}

func position(t *token.Token) Pos {
	if t == nil || t.Position == nil {
		return Pos{1, 1}
	}
	return Pos{max(1, t.Position.Line), max(1, t.Position.Column)}
}

func (c *converter) node(y ast.Node) *node {
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
		c.errorf(position(y.GetToken()), "YAML tags are not supported, got %s", quote(colons(y.GetToken().Value))).
			Hint = "write the value without it"
		return &node{pos: position(y.GetToken()), kind: broken}
	case *ast.LiteralNode:
		return &node{pos: position(y.GetToken()), quoted: true, text: colons(y.Value.Value)}
	case ast.ScalarNode:
		return scalar(y.GetToken())
	}
	return &node{pos: Pos{1, 1}, kind: nothing}
}

func scalar(t *token.Token) *node {
	n := &node{pos: position(t), text: colons(t.Value)}
	switch t.Type {
	case token.NullType, token.ImplicitNullType:
		n.kind = nothing
	case token.SingleQuoteType, token.DoubleQuoteType:
		n.quoted = true
	}
	return n
}

func (c *converter) list(y *ast.SequenceNode) *node {
	n := &node{pos: position(y.GetToken()), kind: list, flow: y.IsFlowStyle}
	for _, v := range y.Values {
		item := c.node(v)
		n.items = append(n.items, item)
		n.partial = n.partial || !item.whole()
	}
	return n
}

// mapping gives a block mapping the position of its first key, where a reader looks for it.
func (c *converter) mapping(y *ast.MappingNode) *node {
	n := &node{pos: position(y.GetToken()), kind: mapping, flow: y.IsFlowStyle}
	for i, v := range y.Values {
		key := c.key(v.Key)
		if i == 0 && !n.flow {
			n.pos = key.pos
		}
		if key.kind != word {
			n.lacks, n.partial = true, true
			continue
		}
		value := c.node(v.Value)
		if value.kind == nothing {
			value = &node{pos: key.pos, kind: nothing}
		}
		n.pairs = append(n.pairs, pair{key.pos, key.text, value})
		n.partial = n.partial || !value.whole()
	}
	return n
}

// key is the word of a key; a key of another kind is reported and returned as broken.
func (c *converter) key(y ast.Node) *node {
	if explicit, ok := y.(*ast.MappingKeyNode); ok {
		y = explicit.Value
	}
	if y == nil {
		return &node{pos: Pos{1, 1}, kind: broken}
	}
	at := position(y.GetToken())
	switch y := y.(type) {
	case *ast.MergeKeyNode:
		c.errorf(at, "YAML merge keys are not supported").Hint = "write the keys out, or give the whole mapping by an alias"
	case *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
		c.errorf(at, "a key must be a plain word")
	case ast.ScalarNode:
		return &node{pos: at, text: colons(y.GetToken().Value)}
	default:
		c.errorf(at, "a key must be a plain word")
	}
	return &node{pos: at, kind: broken}
}

// anchor makes the name known only when its value is read, so that no node can contain itself.
func (c *converter) anchor(y *ast.AnchorNode) *node {
	n := c.node(y.Value)
	c.anchors[y.Name.GetToken().Value] = n
	return n
}

func (c *converter) alias(y *ast.AliasNode) *node {
	at, name := position(y.GetToken()), y.Value.GetToken().Value
	if n, ok := c.anchors[name]; ok {
		return n
	}
	name = colons(name)
	e := c.errorf(at, "alias *%s names no anchor that stands before it", name)
	e.Hint = "declare it with &" + name + " in front of a value; a set is named by $" + name + ", and text that begins with * needs quotes"
	return &node{pos: at, kind: broken}
}
