// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
)

// MaxClasses is the largest number of classes in a table, including class 0. A class number has 16 bits.
const MaxClasses = 65535

// census assigns a number, the class, to each combination of sets that occurs. It holds a current combination, which toggle changes. It identifies a
// combination by the exclusive or of random 128-bit keys, one per set (Zobrist, "A New Hashing Method with Application for Game Playing", 1970). So a
// change costs the same with 10,000 sets as with one. The probability that two of MaxClasses combinations have the same hash is below 2^-96.
type census struct {
	keys    []combination
	now     combination
	in      []uint64 // the sets of the current combination, one bit each
	numbers map[combination]uint16
	members [][]int32 // for each class, its sets in ascending order
	recent  [256]recentClass
}

type combination [2]uint64

// recentClass caches a result of the map lookup. The cache pays off because a sweep meets the same few combinations many times.
type recentClass struct {
	of    combination
	class uint16
}

func newCensus(sets int) *census {
	c := &census{
		keys:    make([]combination, sets),
		in:      make([]uint64, (sets+63)/64),
		numbers: map[combination]uint16{{}: 0},
		members: [][]int32{nil},
	}
	for i := range c.keys {
		c.keys[i] = combination{rand.Uint64(), rand.Uint64()}
	}
	return c
}

// toggle adds the set to the current combination. If the set is already in the combination, toggle removes it.
func (c *census) toggle(set int32) {
	key := &c.keys[set]
	c.now[0] ^= key[0]
	c.now[1] ^= key[1]
	c.in[set>>6] ^= 1 << (set & 63)
}

// class returns the number of the current combination. A new combination gets a new number.
func (c *census) class() (uint16, error) {
	recent := &c.recent[c.now[0]&0xff]
	if recent.of == c.now {
		return recent.class, nil // the zero value is also correct: a combination without sets has class 0
	}
	class, ok := c.numbers[c.now]
	if !ok {
		if len(c.members) == MaxClasses {
			return 0, fmt.Errorf("the %d sets overlap in more than %d ways: use fewer sets, or sets that overlap less",
				len(c.keys), MaxClasses-1)
		}
		class = uint16(len(c.members))
		c.numbers[c.now] = class
		c.members = append(c.members, c.present())
	}
	*recent = recentClass{c.now, class}
	return class, nil
}

// present lists the sets of the current combination.
func (c *census) present() []int32 {
	var sets []int32
	for i, word := range c.in {
		for ; word != 0; word &= word - 1 {
			sets = append(sets, int32(i*64+bits.TrailingZeros64(word)))
		}
	}
	return sets
}
