// SPDX-License-Identifier: Apache-2.0

package flowspec

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The bits of an operator (RFC 8955, 4.2.1.1 and 4.2.1.2).
const (
	opEnd     = 0x80 // the last term of the component
	opAnd     = 0x40 // this term and the previous one are joined by AND; otherwise by OR
	opLength  = 0x30 // length of the value: 1, 2, 4 or 8 bytes
	opLess    = 0x04
	opGreater = 0x02
	opEqual   = 0x01
	opNot     = 0x02 // for bitmasks
	opMatch   = 0x01 // for bitmasks: all bits of the value must be set, not just any
)

// maxTerms is the largest number of terms of a component. An upstream router needs only a few; more cost time.
const maxTerms = 128

// term is one comparison of a component.
type term struct {
	op    byte
	value uint64
	bytes int // length of the value
}

func (t term) and() bool { return t.op&opAnd != 0 }

// text returns the text of a term, without its AND or OR.
func (t term) text(bitmask bool) string {
	if bitmask {
		return map[byte]string{0: "any", opMatch: "all", opNot: "!any", opNot | opMatch: "!all"}[t.op&(opNot|opMatch)] +
			fmt.Sprintf(":0x%02x", t.value)
	}
	words := map[byte]string{0: "never", opEqual: "=", opLess: "<", opGreater: ">", opLess | opEqual: "<=", opGreater | opEqual: ">=",
		opLess | opGreater: "!=", opLess | opGreater | opEqual: "always"}
	word := words[t.op&(opLess|opGreater|opEqual)]
	if word == "never" || word == "always" {
		return word
	}
	return word + fmt.Sprint(t.value)
}

// terms parses the terms of a component without a prefix.
func (c *Component) terms() ([]term, error) {
	terms, rest, err := readTerms(c.Terms)
	if err == nil && len(rest) > 0 {
		err = errors.New("has bytes after its last operator")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Type, err)
	}
	return terms, nil
}

// readTerms parses terms up to the term with the end bit. It returns the terms and the bytes after them.
func readTerms(b []byte) (terms []term, rest []byte, err error) {
	for {
		if len(b) == 0 {
			return nil, nil, errors.New("ends without a last operator")
		}
		t := term{op: b[0], bytes: 1 << (b[0] & opLength >> 4)}
		if len(b) < 1+t.bytes {
			return nil, nil, fmt.Errorf("ends within a value of %d bytes", t.bytes)
		}
		t.value = number(b[1 : 1+t.bytes])
		if len(terms) == maxTerms {
			return nil, nil, untestable(fmt.Sprintf("has more than %d operators", maxTerms))
		}
		terms, b = append(terms, t), b[1+t.bytes:]
		if t.op&opEnd != 0 {
			return terms, b, nil
		}
	}
}

// number returns the unsigned big-endian number in 1, 2, 4 or 8 bytes.
func number(b []byte) uint64 {
	var wide [8]byte
	copy(wide[8-len(b):], b)
	return binary.BigEndian.Uint64(wide[:])
}
