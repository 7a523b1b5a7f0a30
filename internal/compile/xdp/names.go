// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Limits of bpf/names.h.
const (
	maxNameSets  = 32
	maxNameDepth = 16 // labels of a listed name
)

// names are the sets of domain names that rules use. All names are in one table, each with the sets that contain it.
type names struct {
	bit    map[int]int // maps the index of each used set in ir.Program.Names to its bit
	key    [2]uint64   // of the hash
	depths uint32      // the numbers of labels that listed names have, a bit each
	root   uint32      // the sets that contain the root, a bit each
	table  nameTable

	unanswered uint32 // the bit of queries for which ir.Rule.Unanswered holds; 0: no rule uses it
}

func compileNames(p *ir.Program) (*names, error) {
	n := &names{bit: map[int]int{}}
	for i := range p.Rules {
		for _, m := range p.Rules[i].Names {
			for _, set := range m.Sets {
				if _, known := n.bit[set]; !known {
					n.bit[set] = len(n.bit)
				}
			}
		}
	}
	most := maxNameSets
	if slices.ContainsFunc(p.Rules, func(r ir.Rule) bool { return r.Unanswered }) {
		most--
		n.unanswered = 1 << most
	}
	if len(n.bit) > most {
		return nil, fmt.Errorf("rules ask for %d different sets of names, at most %d can be told apart: merge some", len(n.bit), most)
	}
	if len(n.bit) == 0 {
		return n, nil
	}
	// If too many names fall into the same part of the table, build the table again with another key.
	for range 8 {
		n.key = randomKey()
		list, err := n.hash(p)
		if err != nil {
			return nil, err
		}
		var ok bool
		if n.table, ok = newNameTable(list); ok {
			return n, nil
		}
	}
	return nil, fmt.Errorf("hashing %d names: too many fall into the same place", n.table.names)
}

// randomKey returns a new secret key for the hash. A sender that knew the key could construct names whose hashes collide with those of listed names.
func randomKey() [2]uint64 {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return [2]uint64{binary.NativeEndian.Uint64(b[:]), binary.NativeEndian.Uint64(b[8:])}
}

// hash returns the hashes of all names in the sets that rules use.
func (n *names) hash(p *ir.Program) ([]hashedName, error) {
	var list []hashedName
	for set, bit := range n.bit {
		list = slices.Grow(list, len(p.Names[set].Names))
		for _, name := range p.Names[set].Names {
			hash, depth := hashName(n.key, name)
			switch {
			case depth == 0:
				n.root |= 1 << bit
				continue
			case depth > maxNameDepth:
				return nil, fmt.Errorf("set %q: name %s has %d labels, at most %d can be matched", p.Names[set].Name, name, depth, maxNameDepth)
			}
			n.depths |= 1 << depth
			list = append(list, hashedName{hash, 1 << bit})
		}
	}
	return list, nil
}

// bits returns the sets of a match, a bit each.
func (n *names) bits(m ir.NameMatch) (bits uint32) {
	for _, set := range m.Sets {
		bits |= 1 << n.bit[set]
	}
	return bits
}

func (n *names) part() component {
	if len(n.bit) == 0 {
		return component{}
	}
	return component{
		constants: map[string]any{
			"name_buckets":   uint32(n.table.homes),
			"name_depths":    n.depths,
			"name_root_sets": n.root,
			"name_key":       n.key,
		},
		shapes: map[string]image.Shape{image.Names: {ValueSize: nameBucketSize, Entries: uint32(n.table.buckets())}},
		fill: func(memory map[string][]byte) error {
			copy(memory[image.Names], n.table.memory)
			return nil
		},
	}
}

// zones returns the component with the tables of answered names and of flooded zones. The loader chooses the key for their hashes. It keeps the key
// as long as it keeps the tables.
func (n *names) zones() component {
	if n.unanswered == 0 {
		return component{}
	}
	return component{
		constants: map[string]any{"unanswered_bit": n.unanswered, "answered_mask": uint32(image.AnsweredBuckets - 1)},
		shapes: map[string]image.Shape{
			image.AnsweredNames: {ValueSize: image.AnsweredBucketSize, Entries: image.AnsweredBuckets},
			image.FloodedZones:  {ValueSize: image.ZoneSize, Entries: image.Zones},
			image.ZoneTimes:     {ValueSize: image.ZoneTimesSize, Entries: 1},
		},
	}
}

// hashName returns the hash of a name's labels, beginning with the last label, and the number of labels.
func hashName(key [2]uint64, name string) (hash uint64, depth int) {
	h := newSIPHash(key)
	for rest := name; rest != ""; depth++ {
		dot := strings.LastIndexByte(rest, '.')
		h.label(unescaped(rest[dot+1:]))
		rest = rest[:max(dot, 0)]
	}
	return h.sum(), depth
}
