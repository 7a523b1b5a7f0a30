// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// nftTable describes one table, from an nft script or from the kernel. It has only the data that Verify compares.
type nftTable struct {
	chains   map[string]*nftChain
	sets     map[string]*nftSet
	counters []string
}

// nftChain is a chain; hook is "" if it is not a base chain.
type nftChain struct {
	hook, verdict string
	priority      int
	devices       []string
	rules         int
}

// nftSet is a set or a map.
type nftSet struct {
	kind     string // type
	timeout  bool
	merged   bool // nft may merge neighbouring elements into one
	elements []string
	number   int // number of elements in the kernel
}

// readTable parses the statements of a script about a table of family inet, and about the table of family netdev with the same name. Names of chains
// and sets of the netdev table get the prefix ofTagged. For a statement about any other object readTable returns an error.
func readTable(text, name string) (*nftTable, error) {
	t := &nftTable{chains: map[string]*nftChain{}, sets: map[string]*nftSet{}}
	for _, statement := range statements(text) {
		head, body, block := cutBlock(statement)
		words := strings.Fields(head)
		switch {
		case block && slices.Equal(words, []string{"table", "inet", name}):
			if err := t.read(body, ""); err != nil {
				return nil, err
			}
		case block && slices.Equal(words, []string{"table", "netdev", name}):
			if err := t.read(body, ofTagged); err != nil {
				return nil, err
			}
		case block && len(words) == 5 && strings.HasPrefix(head, "add element inet "+name+" "):
			t.set(words[4]).elements = append(t.set(words[4]).elements, elements(body)...)
		case ownTable(words, name):
		default:
			return nil, fmt.Errorf("the script of table %s has a statement about something else: %q",
				name, shorten(statement, 80))
		}
	}
	return t, nil
}

// ownTable reports whether words create or delete the table itself.
func ownTable(words []string, name string) bool {
	if len(words) > 0 && slices.Contains([]string{"add", "delete", "create"}, words[0]) {
		words = words[1:]
	}
	return slices.Equal(words, []string{"table", "inet", name})
}

func (t *nftTable) set(name string) *nftSet {
	if t.sets[name] == nil {
		t.sets[name] = &nftSet{}
	}
	return t.sets[name]
}

// read parses the body of a table's block. It adds the prefix to the names of chains and sets.
func (t *nftTable) read(body, prefix string) error {
	for _, statement := range statements(body) {
		head, inner, _ := cutBlock(statement)
		words := append(strings.Fields(head), "", "")
		name := prefix + strings.Trim(words[1], `"`)
		switch words[0] {
		case "chain":
			if t.chains[name] == nil {
				t.chains[name] = &nftChain{}
			}
			if err := t.chains[name].read(inner); err != nil {
				return fmt.Errorf("chain %s: %w", name, err)
			}
		case "set", "map":
			t.set(name).read(inner)
		case "counter":
			t.counters = append(t.counters, strings.TrimPrefix(name, prefix))
		}
	}
	return nil
}

func (c *nftChain) read(body string) (err error) {
	for _, statement := range statements(body) {
		words := append(strings.Fields(statement), "")
		switch words[0] {
		case "type":
			err = c.base(statement)
		case "policy":
			c.verdict = words[1]
		case "comment":
		default:
			c.rules++
		}
		if err != nil {
			return err
		}
	}
	if c.hook != "" && c.verdict == "" {
		c.verdict = "accept"
	}
	return nil
}

// base parses `type filter hook ingress devices = { a, b } priority filter - 5`.
func (c *nftChain) base(statement string) error {
	split := strings.NewReplacer("{", " ", "}", " ", ",", " ", "=", " ", `"`, "")
	words := strings.Fields(split.Replace(statement))
	hook, priority := slices.Index(words, "hook"), slices.Index(words, "priority")
	if hook < 0 || priority < hook+2 {
		return fmt.Errorf("%q is no base chain", statement)
	}
	c.hook = words[hook+1]
	if priority > hook+2 {
		c.devices = slices.Sorted(slices.Values(words[hook+3 : priority]))
	}
	var err error
	c.priority, err = readPriority(strings.Join(words[priority+1:], ""))
	return err
}

// priorities are the numbers of the names of priorities in nft (man nft, "Standard priority names").
var priorities = map[string]int{"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50, "srcnat": 100}

func readPriority(text string) (int, error) {
	base := 0
	for name, value := range priorities {
		if rest, ok := strings.CutPrefix(text, name); ok {
			base, text = value, rest
		}
	}
	if text == "" {
		return base, nil
	}
	offset, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("priority %q is no number", text)
	}
	return base + offset, nil
}

func (s *nftSet) read(body string) {
	for _, statement := range statements(body) {
		key, value, _ := strings.Cut(statement, " ")
		switch key {
		case "elements":
			_, list, _ := cutBlock(statement)
			s.elements = append(s.elements, elements(list)...)
		case "type":
			s.kind = value
		case "flags":
			s.timeout = s.timeout || strings.Contains(value, "timeout")
		case "timeout":
			s.timeout = true
		case "auto-merge":
			s.merged = true
		}
	}
}

// elements splits a list at its commas. It removes the timeout and the comment of each element.
func elements(list string) (found []string) {
	for _, element := range split(list, ",") {
		for _, end := range []string{" timeout ", " comment "} {
			element, _, _ = strings.Cut(element, end)
		}
		found = append(found, strings.Join(strings.Fields(element), " "))
	}
	return found
}

// cutBlock splits `head { body }`.
func cutBlock(statement string) (head, body string, ok bool) {
	head, body, ok = strings.Cut(statement, "{")
	if end := strings.LastIndexByte(body, '}'); end >= 0 {
		body = body[:end]
	}
	return strings.TrimSpace(head), body, ok
}

// statements splits a script of nft, or the body of a block, into statements.
func statements(text string) []string { return split(text, "\n;") }

// split splits a text at the characters in at, except in blocks, quotes and comments. It drops empty parts and comments.
func split(text, at string) (parts []string) {
	var part strings.Builder
	end := func() {
		if s := strings.TrimSpace(part.String()); s != "" {
			parts = append(parts, s)
		}
		part.Reset()
	}
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '\\' && i+1 < len(text) && text[i+1] == '\n':
			i++
			c = ' '
		case c == '#':
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
			continue
		case c == '{':
			depth++
		case c == '}':
			depth--
		case depth == 0 && strings.IndexByte(at, c) >= 0:
			end()
			continue
		}
		part.WriteByte(c)
	}
	end()
	return parts
}
