package addrs

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
)

// MaxClasses is the most classes that a table can hold, class 0 included. A class number has 16 bits.
const MaxClasses = 65535

// census numbers the combinations of sets that occur. It holds one combination at a time, changed by toggle, and knows
// it by the exclusive or of random 128-bit keys, one per set (Zobrist, "A New Hashing Method with Application for Game
// Playing", 1970), so that a change costs the same for 10,000 sets as for one. Two combinations out of MaxClasses have
// the same hash with a probability below 2^-96.
type census struct {
	keys    []combination
	now     combination
	in      []uint64 // the sets of the present combination, a bit each
	numbers map[combination]uint16
	members [][]int32 // of each class, the sets in ascending order
	recent  [256]recentClass
}

type combination [2]uint64

// recentClass saves the map lookup: a sweep meets the same few combinations again and again.
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

// toggle adds the set to the present combination, or takes it out.
func (c *census) toggle(set int32) {
	key := &c.keys[set]
	c.now[0] ^= key[0]
	c.now[1] ^= key[1]
	c.in[set>>6] ^= 1 << (set & 63)
}

// class numbers the present combination.
func (c *census) class() (uint16, error) {
	recent := &c.recent[c.now[0]&0xff]
	if recent.of == c.now {
		return recent.class, nil // the zero value is right too: no sets, class 0
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

// present lists the sets of the present combination.
func (c *census) present() []int32 {
	var sets []int32
	for i, word := range c.in {
		for ; word != 0; word &= word - 1 {
			sets = append(sets, int32(i*64+bits.TrailingZeros64(word)))
		}
	}
	return sets
}
