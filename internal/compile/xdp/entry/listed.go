// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// Record is a rule that remains for the sources of a class, in the map image.Listed. It has a range of the key, and the decision of the rule. The
// records of a class form a chain. After the chain, the rules for sources that are in no set may follow. The class is the index of the first record.
type Record struct {
	First, Width uint16 // the key, a port or an ICMP type and code in host byte order, is at most Width above First
	Decision     uint32 // or askGeneral
	Next         uint32 // the index of the next record; 0: the rules for sources that are in no set follow
}

// RecordSize is the size of a Record in the map.
const RecordSize = 16

const (
	askGeneral  = 1<<31 - 1
	mostChain   = 4       // the largest number of records with which a packet is compared
	mostRecords = 1 << 17 // of all sections together; they take 2 MB
)

// records are the records of all sections. The record with index 0 is not used, because that index means none.
type records struct {
	list   []Record
	blocks map[string]int // the index of the first record of each block; the key is the block's content
}

// classes adds code that looks up the class of the source. It reports false, and adds no code, if no rule depends on the class. A source of class 0
// continues at the label unlisted. Other sources continue with the records of their class.
func (s *section) classes() (called bool) {
	s.Say("the class of the source")
	if s.first == sameForAll || !s.lookUp() {
		s.Add(asm.Ja.Label(s.label("unlisted")))
		return false
	}
	if s.first == tooMany {
		s.Add(asm.JNE.Imm(asm.R0, 0, toGeneral), asm.Ja.Label(s.label("unlisted")))
		return true
	}
	s.Add(
		asm.JEq.Imm(asm.R0, 0, s.label("unlisted")),
		asm.LoadMem(asm.R3, base, s.family.l4+s.keyAt(), asm.Half),
		asm.HostTo(asm.BE, asm.R3, asm.Half),
		asm.And.Imm(asm.R0, int32(image.PowerOfTwo(s.Classes.Count())-1)),
	)
	s.chain()
	return true
}

// keyAt returns the offset of the key in the L4 header.
func (s *section) keyAt() int16 {
	if s.proto.field == packet.ICMP {
		return 0
	}
	return 2
}

// chain adds code that compares the key in r3 with the records of the class in r0.
func (s *section) chain() {
	first := uint32(s.first) // counted within the section; later records have their index in the map
	for hop := range mostChain {
		miss := s.label(fmt.Sprintf("miss%d", hop))
		s.Add(
			asm.LSh.Imm(asm.R0, 4), // multiply by RecordSize
			asm.LoadMapValue(asm.R2, 0, first*RecordSize).WithReference(image.Listed),
			asm.Add.Reg(asm.R2, asm.R0),
			asm.LoadMem(asm.R1, asm.R2, 0, asm.Half),
			asm.Mov.Reg(asm.R4, asm.R3),
			asm.Sub.Reg(asm.R4, asm.R1),
			asm.LoadMem(asm.R1, asm.R2, 2, asm.Half),
			asm.JGT.Reg(asm.R4, asm.R1, miss),
			asm.LoadMem(asm.R1, asm.R2, 4, asm.Word),
			asm.StoreMem(asm.RFP, slotAt, asm.R1, asm.Word),
			asm.LoadMem(asm.R1, asm.R2, 12, asm.Word),
			asm.JEq.Imm(asm.R1, int32(ir.Drop), toDrop),
			asm.JEq.Imm(asm.R1, int32(ir.Pass), toPass),
			asm.Ja.Label(toGeneral),
		)
		s.Mark(miss)
		s.Add(
			asm.LoadMem(asm.R0, asm.R2, 8, asm.Word),
			asm.JEq.Imm(asm.R0, 0, s.label("unlisted")),
			asm.And.Imm(asm.R0, int32(s.records.capacity()-1)),
		)
		first = 0
	}
	s.Add(asm.Ja.Label(toGeneral))
}

// Special values of the index of a first record.
const (
	sameForAll = 0 // the remaining rules are the same for sources of all classes
	tooMany    = -1
)

// record makes the records of the rules in an index. It returns the index of the record for class 0, or sameForAll, or tooMany.
func (s *section) record(x *index) (first int) {
	unlisted := map[int]*rule{}
	for i := range s.class0 {
		unlisted[s.class0[i].number] = &s.class0[i]
	}
	block := newBlock(s.Classes.Count())
	differ := false
	for class := 1; class < s.Classes.Count(); class++ {
		chain := s.chained(x.left(s, class), unlisted)
		differ = differ || len(chain) > 0
		if !block.add(class, chain) {
			return tooMany
		}
	}
	if !differ {
		return sameForAll
	}
	return s.records.keep(block)
}

// same reports whether two rules have the same remaining tests.
func same(a, b *rule) bool {
	return a.general == b.general && a.protect == b.protect && len(a.match) == len(b.match) && slices.Equal(a.dynamic, b.dynamic)
}

// chained makes the records of the rules that remain for a class. The records contain only the class's own rules, because the rules for sources that
// are in no set follow them. These are in unlisted, by number. For some keys this order would be wrong, so general() decides them: a key that matches
// a rule of the class's own and an earlier unlisted rule, and a key of an unlisted rule that the class does not have.
func (s *section) chained(left []rule, unlisted map[int]*rule) (chain []Record) {
	var before []ir.Range // keys of the unlisted rules so far
	seen, ended := 0, false
	for i := range left {
		r := &left[i]
		if other := unlisted[r.number]; other != nil && same(other, r) {
			before = append(before, s.keys(r)...)
			seen++
			continue
		}
		chain = append(chain, leadTo(askGeneral, ranges.Common(ranges.Normalize(slices.Clone(before)), s.keys(r), 1<<16))...)
		chain = append(chain, leadTo(s.recorded(r), s.keys(r))...)
		ended = ended || r.always()
	}
	if !ended && seen < len(s.class0) {
		chain = append(chain, leadTo(askGeneral, s.missing(left))...)
	}
	if len(chain) > mostChain {
		return leadTo(askGeneral, allKeys)
	}
	return chain
}

// missing returns the keys of those unlisted rules that the class does not have, or has in another form.
func (s *section) missing(left []rule) (keys []ir.Range) {
	for i := range s.class0 {
		r := &s.class0[i]
		if !slices.ContainsFunc(left, func(l rule) bool { return l.number == r.number && same(r, &l) }) {
			keys = append(keys, s.keys(r)...)
		}
	}
	return ranges.Normalize(keys)
}

// allKeys contains every value of a key.
var allKeys = []ir.Range{{First: 0, Last: 1<<16 - 1}}

// keys returns the values of the key that a rule may match.
func (s *section) keys(r *rule) []ir.Range {
	if keys := s.key(r); keys != nil {
		return keys
	}
	return allKeys
}

// recorded returns the decision in the records of a rule. It is askGeneral if the rule has further tests.
func (s *section) recorded(r *rule) uint32 {
	more := len(r.match) > 1 || len(r.match) == 1 && s.key(r) == nil
	if more || r.general || r.protect || len(r.dynamic)+len(r.over)+len(r.mss) > 0 {
		return askGeneral
	}
	return s.Decisions[r.number]
}

// leadTo returns records that have these keys and a decision.
func leadTo(decision uint32, keys []ir.Range) (list []Record) {
	for _, k := range keys {
		list = append(list, Record{First: uint16(k.First), Width: uint16(k.Last - k.First), Decision: decision})
	}
	return list
}
