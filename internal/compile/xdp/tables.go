// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// tables compiles rules to bit vectors, the form for many rules. A dimension is the class of an address, a dynamic set, or a field. In each
// dimension, the packet's value selects a row with a bit for each rule that can still match. The lowest bit that is set in all selected rows is the
// rule. Each row begins with a summary that has one bit for 64 of its bits. So a search among 4,096 rules reads only one word per dimension until the
// summaries have a common bit. This is the algorithm of aggregated bit vectors: Baboescu and Varghese, Scalable Packet Classification, SIGCOMM 2001.
// The memory is rows times rules. It cannot grow exponentially, as tables of combined classes do.
type tables struct {
	program    *ir.Program
	addrs      *addresses
	conditions *conditions
	decisions  []uint32 // of each rule
	alts       []alternative
	dims       []*dim
	words      int // number of words for a row's bits, padded so that every index in reach is valid
	sums       int // number of words of a row's summary; 0 if all bits are in one word
}

// maxRows is the largest size of all rows together in bytes. It limits the memory for policies whose rules have many different values.
const maxRows = 1 << 30

// An alternative is a rule or a part of a rule. A rule that matches static sets or dynamic sets becomes several alternatives. Each is a conjunction
// of one condition for each dimension.
type alternative struct {
	rule     int
	src, dst addrCond
}

// addrCond is the condition on an address in an alternative.
type addrCond struct {
	in, out       []int  // expressions that must hold, and expressions that must not hold
	inDyn, outDyn uint32 // dynamic sets that must contain the address, and sets that must not, a bit each
}

// dim is one dimension.
type dim struct {
	name   string
	offset int16                            // of the value in struct packet
	bit    int                              // for dynamic sets, the bit of the value that is tested; -1: the whole value
	size   int                              // the number of values
	fill   func(value int, row []uint64)    // sets the bits of the alternatives that can match a value
	ranges func(alt int) ([]ir.Range, bool) // in place of fill, for fields: the values that an alternative allows, and whether it tests the field
	index  []uint16                         // maps a value to the number of its row, counted from base
	rows   [][]uint64
	base   int // the number of this dimension's first row
	start  int // the offset of this dimension's index in the map of all indexes
}

func newTables(p *ir.Program, a *addresses, c *conditions, decisions []uint32) *tables {
	t := &tables{program: p, addrs: a, conditions: c, decisions: decisions}
	for i := range p.Rules {
		t.alts = append(t.alts, a.alternatives(i, &p.Rules[i])...)
	}
	t.shape()
	t.addressDims("source", image.SrcClass, image.SrcDynamic, func(a *alternative) *addrCond { return &a.src })
	t.addressDims("destination", image.DstClass, image.DstDynamic, func(a *alternative) *addrCond { return &a.dst })
	for f := range packet.NumFields {
		t.fieldDim(f)
	}
	return t
}

// shape computes the size of rows. A summary word stands for 64 words.
func (t *tables) shape() {
	words := (len(t.alts) + 63) / 64
	switch {
	case words <= 1:
		t.words, t.sums = 1, 0
	case words <= 64:
		t.words, t.sums = image.PowerOfTwo(words), 1
	default:
		t.sums = (words + 63) / 64
		t.words = 64 * t.sums
	}
}

// allRows returns the number of rows of all dimensions. build must have been called.
func (t *tables) allRows() int {
	last := t.dims[len(t.dims)-1]
	return last.base + len(last.rows)
}

// direct reports whether all rows fit into one value of the map. The address of that value is a constant in the program, which takes half the
// instructions of a lookup. Before Linux 6.7 a value has at most 4 MB (array_map_alloc_check).
func (t *tables) direct() bool { return t.allRows()*t.rowBytes() <= 4<<20 }

// rowBytes returns the size of a row in bytes.
func (t *tables) rowBytes() int { return 8 * (t.sums + t.words) }

// cost returns an estimate of the time in nanoseconds for a packet that matches no rule. If only the condition of a rule does not hold, the rows are
// searched again. The estimate assumes that this happens for one in four of the rules with a condition.
func (t *tables) cost() float64 {
	const fixed, perDim, perWord, asked = 2.0, 2.5, 0.6, 0.25
	once := fixed + float64(len(t.dims))*(perDim+perWord*float64(max(t.sums, 1)))
	return once * (1 + asked*float64(t.conditions.usual()))
}

// alternatives returns the alternatives of a rule. A rule that matches static sets or dynamic sets is split.
func (a *addresses) alternatives(i int, r *ir.Rule) []alternative {
	var out []alternative
	for _, src := range a.conditions(r.Src) {
		for _, dst := range a.conditions(r.Dst) {
			out = append(out, alternative{rule: i, src: src, dst: dst})
		}
	}
	return out
}

func (a *addresses) conditions(matches []ir.AddrMatch) []addrCond {
	out := []addrCond{{}}
	for _, m := range matches {
		expr, dynamic := a.Expr(m), a.dynamicBits(m)
		if m.Not {
			for i := range out {
				out[i].outDyn |= dynamic
				if expr >= 0 {
					out[i].out = append(slices.Clone(out[i].out), expr)
				}
			}
			continue
		}
		var next []addrCond
		for _, c := range out {
			if expr >= 0 {
				with := c
				with.in = append(slices.Clone(c.in), expr)
				next = append(next, with)
			}
			for number := range image.MaxDynamicSets {
				if dynamic>>number&1 == 1 {
					with := c
					with.inDyn |= 1 << number
					next = append(next, with)
				}
			}
		}
		out = next
	}
	return out
}

// addressDims adds the dimensions of an address: its class, and each dynamic set.
func (t *tables) addressDims(name string, class, dynamic int16, of func(*alternative) *addrCond) {
	static, sets := false, uint32(0)
	for i := range t.alts {
		c := of(&t.alts[i])
		static = static || len(c.in)+len(c.out) > 0
		sets |= c.inDyn | c.outDyn
	}
	if static {
		t.dims = append(t.dims, &dim{
			name: name, offset: class, bit: -1, size: t.addrs.Count(), fill: t.classRows(of),
		})
	}
	for number := range image.MaxDynamicSets {
		if sets>>number&1 == 1 {
			t.dims = append(t.dims, &dim{
				name: fmt.Sprintf("%s in dynamic set %d", name, number), offset: dynamic, bit: number, size: 2,
				fill: t.dynamicRows(number, of),
			})
		}
	}
}

// classRows returns a function that fills the row of a class. Most alternatives have one expression or none. So the work for a class depends on the
// number of its expressions, not on the number of rules.
func (t *tables) classRows(of func(*alternative) *addrCond) func(int, []uint64) {
	free := make([]uint64, t.words) // the alternatives that do not test the class
	byExpr := make([][]int, len(t.addrs.exprs))
	var others []int
	for i := range t.alts {
		switch c := of(&t.alts[i]); {
		case len(c.in)+len(c.out) == 0:
			setBit(free, i)
		case len(c.in) == 1 && len(c.out) == 0:
			byExpr[c.in[0]] = append(byExpr[c.in[0]], i)
		default:
			others = append(others, i)
		}
	}
	return func(class int, row []uint64) {
		copy(row, free)
		for w, holding := range t.addrs.truth[class] {
			for ; holding != 0; holding &= holding - 1 {
				for _, alt := range byExpr[64*w+bits.TrailingZeros64(holding)] {
					setBit(row, alt)
				}
			}
		}
		for _, alt := range others {
			if t.addrs.satisfies(class, of(&t.alts[alt])) {
				setBit(row, alt)
			}
		}
	}
}

// dynamicRows returns a function that fills the rows of a dynamic set. The row of value 1 is for addresses in the set. The row of value 0 is for all
// others.
func (t *tables) dynamicRows(number int, of func(*alternative) *addrCond) func(int, []uint64) {
	return func(value int, row []uint64) {
		for i := range t.alts {
			c := of(&t.alts[i])
			excludes := c.inDyn
			if value == 1 {
				excludes = c.outDyn
			}
			if excludes>>number&1 == 0 {
				setBit(row, i)
			}
		}
	}
}

func setBit(row []uint64, i int) { row[i/64] |= 1 << (i % 64) }

func (a *addresses) satisfies(class int, c *addrCond) bool {
	for _, e := range c.in {
		if !a.Holds(class, e) {
			return false
		}
	}
	for _, e := range c.out {
		if a.Holds(class, e) {
			return false
		}
	}
	return true
}

func (t *tables) fieldDim(f packet.Field) {
	of := func(alt int) ([]ir.Range, bool) {
		for _, m := range t.program.Rules[t.alts[alt].rule].Match {
			if m.Field == f {
				return m.Values, true
			}
		}
		return nil, false
	}
	for i := range t.alts {
		if _, ok := of(i); ok {
			t.dims = append(t.dims, &dim{
				name: f.String(), offset: image.FieldOffset(f), bit: -1, size: int(f.Size()), ranges: of,
			})
			return
		}
	}
}

// farthest returns the largest offset in a row, in bytes, that an instruction uses. It is the offset of the last word for which the last summary word
// stands. Offsets in instructions are signed 16-bit numbers.
func (t *tables) farthest() int { return 8 * (t.sums + 64*max(t.sums-1, 0) + 63) }

// build makes the rows of all dimensions.
func (t *tables) build() error {
	if t.farthest() > math.MaxInt16 {
		return fmt.Errorf("the %d rules make %d alternatives, too many for the tables: "+
			"put addresses and ports that are treated alike into one rule", len(t.program.Rules), len(t.alts))
	}
	start, base := 0, 0
	for _, d := range t.dims {
		set := newRowSet()
		if d.ranges != nil {
			t.fieldRows(d, set)
		} else {
			t.valueRows(d, set)
		}
		if set.overflow || (base+len(set.rows))*t.rowBytes() > maxRows {
			return fmt.Errorf("the %d rules differ in too many ways for the tables (%s alone has %d): "+
				"put addresses and ports that are treated alike into one rule", len(t.program.Rules), d.name, len(set.rows))
		}
		d.rows, d.start, d.base = set.rows, start, base
		start += d.size
		base += len(d.rows)
	}
	return nil
}

// valueRows computes the row of each value: the alternatives that can match it.
func (t *tables) valueRows(d *dim, set *rowSet) {
	d.index = make([]uint16, d.size)
	row := make([]uint64, t.words)
	for v := range d.size {
		clear(row)
		d.fill(v, row)
		d.index[v] = set.number(row)
	}
}

// fieldRows computes a row for each bound of a range. Between two bounds the row does not change.
func (t *tables) fieldRows(d *dim, set *rowSet) {
	type change struct {
		at  uint32
		alt int
	}
	var changes []change
	row := make([]uint64, t.words)
	for alt := range t.alts {
		values, tested := d.ranges(alt)
		if !tested {
			setBit(row, alt)
		}
		for _, r := range values {
			changes = append(changes, change{r.First, alt}, change{r.Last + 1, alt})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return int(a.at) - int(b.at) })
	d.index = make([]uint16, d.size)
	next := 0
	for v := 0; v < d.size; {
		for ; next < len(changes) && int(changes[next].at) == v; next++ {
			row[changes[next].alt/64] ^= 1 << (changes[next].alt % 64)
		}
		end := d.size
		if next < len(changes) {
			end = min(end, int(changes[next].at))
		}
		number := set.number(row)
		for ; v < end; v++ {
			d.index[v] = number
		}
	}
}

// rowSet assigns numbers to rows. Equal rows have the same number.
type rowSet struct {
	rows     [][]uint64
	numbers  map[uint64][]uint16
	seed     maphash.Seed
	overflow bool
}

func newRowSet() *rowSet {
	return &rowSet{numbers: map[uint64][]uint16{}, seed: maphash.MakeSeed()}
}

func (s *rowSet) number(row []uint64) uint16 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	var b [8]byte
	for _, w := range row {
		binary.NativeEndian.PutUint64(b[:], w)
		h.Write(b[:])
	}
	sum := h.Sum64()
	for _, n := range s.numbers[sum] {
		if slices.Equal(s.rows[n], row) {
			return n
		}
	}
	if len(s.rows) > 0xffff {
		s.overflow = true
		return 0
	}
	n := uint16(len(s.rows))
	s.rows = append(s.rows, slices.Clone(row))
	s.numbers[sum] = append(s.numbers[sum], n)
	return n
}

// part returns the component with the maps: the indexes of all dimensions one after the other, the rows, and the decision of each alternative.
func (t *tables) part() component {
	if len(t.dims) == 0 { // no rule tests an address or a field
		return component{}
	}
	last := t.dims[len(t.dims)-1]
	asked := uint32(len(t.conditions.numbers))
	rows := image.Shape{ValueSize: uint32(t.rowBytes()), Entries: uint32(t.allRows())}
	if t.direct() {
		rows = image.Shape{ValueSize: rows.ValueSize * rows.Entries, Entries: 1}
	}
	return component{
		constants: map[string]any{"table_conditions": asked},
		shapes: map[string]image.Shape{
			image.Index:   {ValueSize: uint32(2 * (last.start + last.size)), Entries: 1},
			image.Rows:    rows,
			image.Results: {ValueSize: uint32(resultSize * 64 * t.words), Entries: 1},
		},
		fill: func(memory map[string][]byte) error {
			t.fill(memory[image.Index], memory[image.Rows], memory[image.Results])
			return nil
		},
	}
}

func (t *tables) fill(index, rows, results []byte) {
	for _, d := range t.dims {
		for v, row := range d.index {
			binary.NativeEndian.PutUint16(index[2*(d.start+v):], row)
		}
		for i, row := range d.rows {
			t.fillRow(rows[(d.base+i)*t.rowBytes():], row)
		}
	}
	for i, alt := range t.alts {
		t.fillResult(results[resultSize*i:], alt.rule)
		next := i + 1
		for next < len(t.alts) && t.alts[next].rule == alt.rule {
			next++
		}
		binary.NativeEndian.PutUint32(results[resultSize*i+resultNext:], uint32(next))
	}
}

// fillResult writes the decision and the condition of a rule.
func (t *tables) fillResult(to []byte, rule int) {
	decision := t.decisions[rule]
	if number, ok := t.conditions.of(rule); ok {
		decision |= image.Conditional
		binary.NativeEndian.PutUint32(to[resultCondition:], uint32(number))
	}
	binary.NativeEndian.PutUint32(to[resultDecision:], decision)
}

// fillRow writes a row: first the summary, then the bits.
func (t *tables) fillRow(to []byte, row []uint64) {
	for i, w := range row {
		binary.NativeEndian.PutUint64(to[8*(t.sums+i):], w)
		if w != 0 && t.sums > 0 {
			sum := to[8*(i/64):]
			binary.NativeEndian.PutUint64(sum, binary.NativeEndian.Uint64(sum)|1<<(i%64))
		}
	}
}
