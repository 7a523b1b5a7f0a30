// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"unsafe"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// condition contains the tests of a rule besides tests of addresses and fields. There are two sources of conditions. One is the map of conditions:
// the code names a record, and the record is parsed to a condition. The other is a rule of ir.Program. If both conditions are equal,
// condition_holds() of bpf/condition.h tests the same as the rule.
type condition struct {
	until    uint32 // the second of CLOCK_MONOTONIC in which the rule ends; 0: never
	sources  []netip.Prefix
	names    string           // numbers of the sets of names in the record
	payload  []payloadTest    // all must hold
	reply    bool             // the packet must be a reply
	asks     ir.FloodQuestion // a question about a flood
	flood    int              // the number of that flood
	spent    int              // the number of a limit plus 1
	limits   []int            // one of these limits must be exceeded
	judged   int              // the number of the first limit that judges bans, plus 1
	observed int              // the slot in which the packet is only counted, without a decision; 0: the rule decides the packet
}

// payloadTest is a test of the payload: it contains any of several texts, and has certain bytes at certain offsets.
type payloadTest struct {
	texts  []string
	places []string
	not    bool
}

func (t *payloadTest) name() string {
	return fmt.Sprintf("payload:%s:at:%s", strings.Join(t.texts, ",or,"), strings.Join(t.places, ",and,"))
}

// Names of the variables for the tests of a condition. Names in z3 have no blanks.
func untilVar(second uint32) string    { return fmt.Sprintf("before_second_%d", second) }
func overVar(limit, judged int) string { return fmt.Sprintf("over_limit_%d_of_%d", limit, judged) }

func (c *condition) question() string {
	if c.spent > 0 {
		return fmt.Sprintf("%s_of_flood_%d,limit_%d", c.asks, c.flood, c.spent-1)
	}
	return fmt.Sprintf("%s_of_flood_%d", c.asks, c.flood)
}

// key returns a text that is equal for conditions with equal tests.
func (c *condition) key() string { return fmt.Sprintf("%+v", *c) }

// conditions contains the conditions of a program: those of its rules, and those in the memory.
type conditions struct {
	rules   map[int]*condition // conditions of rules, by the number of the rule
	records []*condition       // conditions in the memory, by the number in the code; nil: the record cannot be parsed
	texts   []string           // texts of the search, by the bit of struct packet that is set if the payload contains the text
	ends    []uint32           // the seconds in which rules end
}

// movedSources returns the prefixes of the single set of sources of an essential rule. XDP tests these prefixes in a condition, and not by the class
// of an address. ok is false for other rules.
func movedSources(p *ir.Program, r *ir.Rule) (prefixes []netip.Prefix, ok bool) {
	const most = 4 // MAX_SOURCES of bpf/condition.h
	if r.Kind != ir.RuleKindEssential || len(r.Src) != 1 || r.Src[0].Not || len(r.Src[0].Sets) != 1 {
		return nil, false
	}
	set := p.Sets[r.Src[0].Sets[0]].Static
	if set == nil {
		return nil, false
	}
	prefixes = slices.Collect(set.Prefixes())
	return prefixes, len(prefixes) <= most
}

func readConditions(p *ir.Program, slots []uint32, t *tables) (*conditions, error) {
	c := &conditions{rules: map[int]*condition{}}
	judged, names := len(p.Limits)+1, nameBits(p)
	for i := range p.Rules {
		r := &p.Rules[i]
		sources, moved := movedSources(p, r)
		if !r.Conditional() && !moved {
			continue
		}
		want := &condition{sources: r.Sources, reply: r.Reply, asks: r.Asks, flood: r.Flood, names: namesOf(r, names)}
		if moved {
			want.sources = sources
		}
		if r.Until != 0 {
			want.until = image.SecondOf(r.Until)
			c.ends = append(c.ends, want.until)
		}
		for n := range r.Payload {
			want.payload = append(want.payload, payloadOf(&r.Payload[n]))
		}
		want.limits = slices.Clone(r.Over)
		if r.Asks == ir.AsksSpent {
			want.limits, want.spent = nil, r.Over[0]+1
		}
		if p.Bans(r) && slices.ContainsFunc(r.Over, func(l int) bool { return p.Limits[l].Ban != nil && !p.Limits[l].Ban.Forgeable }) {
			want.judged = judged
			judged += len(r.Over)
		}
		if r.Observe {
			want.observed = int(slots[i])
		}
		want.sources = sorted(want.sources)
		c.rules[i] = want
	}
	var err error
	c.texts = patternTexts(t.memory[image.Patterns])
	for b := t.memory[image.Conditions]; len(b) >= image.ConditionSize; b = b[image.ConditionSize:] {
		record, bad := c.read(b, t)
		c.records, err = append(c.records, record), errors.Join(err, bad)
	}
	return c, err
}

func sorted(list []netip.Prefix) []netip.Prefix {
	list = slices.Clone(list)
	for i := range list {
		list[i] = list[i].Masked()
	}
	slices.SortFunc(list, func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
	return list
}

// nameBits returns the bits of sets of names in records, by the set's index in ir.Program.Names. The bits are numbered in the order in which rules
// use the sets.
func nameBits(p *ir.Program) map[int]uint32 {
	out := map[int]uint32{}
	for i := range p.Rules {
		for _, m := range p.Rules[i].Names {
			for _, set := range m.Sets {
				if out[set] == 0 {
					out[set] = 1 << len(out)
				}
			}
		}
	}
	return out
}

const unanswered = 1 << 31 // the bit of ir.Rule.Unanswered

func namesOf(r *ir.Rule, number map[int]uint32) string {
	var of [2]uint32
	for _, m := range r.Names {
		for _, set := range m.Sets {
			of[flag(m.Not)] |= number[set]
		}
	}
	if r.Unanswered {
		of[0] |= unanswered
	}
	return nameText(of[0], of[1])
}

func nameText(in, out uint32) string {
	if in|out == 0 {
		return ""
	}
	return fmt.Sprintf("names_in_%x_and_not_in_%x", in, out)
}

func payloadOf(m *ir.PayloadMatch) payloadTest {
	t := payloadTest{not: m.Not}
	for i := range m.Any {
		p := &m.Any[i]
		value, mask := make([]byte, len(p.Text)), make([]byte, len(p.Text))
		for at, b := range p.Text {
			mask[at] = 0xff
			if p.NoCase && b >= 'a' && b <= 'z' {
				mask[at] = 0xdf
			}
			value[at] = b & mask[at]
		}
		t.texts = append(t.texts, textKey(value, mask, int(p.Within)))
	}
	slices.Sort(t.texts)
	t.texts = slices.Compact(t.texts)
	for i := range m.At {
		a := &m.At[i]
		t.places = append(t.places, placeKey(a.Base == ir.BaseL4, int(a.Offset), a.Value, a.Mask))
	}
	return t
}

func textKey(value, mask []byte, within int) string {
	return fmt.Sprintf("%x/%x<%d", value, mask, within)
}

func placeKey(l4 bool, offset int, value, mask []byte) string {
	return fmt.Sprintf("%t+%d=%x/%x", l4, offset, value, mask)
}

// Layout of struct patterns, struct pattern and struct place of bpf/payload.h.
const (
	patternsAt   = 2 << 13
	patternBytes = 136
	patternMost  = 64
	placeBytes   = 40
	placeMost    = 16
)

// patternTexts returns the texts of the search, by their bits.
func patternTexts(memory []byte) (list []string) {
	if len(memory) < patternsAt {
		return nil
	}
	for b := memory[patternsAt:]; len(b) >= patternBytes; b = b[patternBytes:] {
		length := min(int(native.Uint16(b[2*patternMost:])), patternMost)
		if length == 0 {
			break
		}
		list = append(list, textKey(b[:length], b[patternMost:][:length], int(native.Uint16(b[2*patternMost+2:]))))
	}
	return list
}

// read parses a record.
func (c *conditions) read(b []byte, t *tables) (*condition, error) {
	r := *(*image.ConditionRecord)(unsafe.Pointer(&slices.Clone(b[:image.ConditionSize])[0]))
	out := &condition{
		until: r.Until, names: nameText(r.Names, r.NoNames), reply: r.Flags&2 != 0, asks: ir.FloodQuestion(r.Asks), flood: int(r.Flood), judged: int(r.Proved),
	}
	if r.Flags&1 != 0 {
		out.observed = int(r.Slot)
	}
	if r.Flags > 3 || r.Sources > uint32(len(r.Source)) {
		return nil, errors.New("a record of a condition has a flag or a number of sources that C does not know")
	}
	for _, end := range c.ends { // the end was computed from two clocks; a second computation may give the next second
		if out.until+1 == end || out.until == end+1 {
			out.until = end
		}
	}
	if out.asks == ir.AsksSpent {
		out.spent = int(r.Limit) + 1
	}
	for i := range r.Layers {
		out.limits = append(out.limits, int(r.Limit+i))
	}
	for _, s := range r.Source[:r.Sources] {
		p, err := prefixOf(wide{s.Prefix.Hi, s.Prefix.Lo}, wide{s.Mask.Hi, s.Mask.Lo})
		if err != nil {
			return nil, err
		}
		out.sources = append(out.sources, p)
	}
	out.sources = sorted(out.sources)
	for _, m := range r.Payload {
		if m.Asked == 0 {
			continue
		}
		test := payloadTest{not: m.Not != 0}
		for left := m.Patterns; left != 0; left &= left - 1 {
			bit := bits.TrailingZeros64(left)
			if bit >= len(c.texts) {
				return nil, errors.New("a condition asks for a text that is not there")
			}
			test.texts = append(test.texts, c.texts[bit])
		}
		slices.Sort(test.texts)
		for i := range int(m.Places) {
			at := (int(m.At) + i) * placeBytes
			if at+placeBytes > len(t.memory[image.Places]) {
				return nil, errors.New("a condition asks for a place that is not there")
			}
			place := t.memory[image.Places][at:][:placeBytes]
			length := min(int(place[3]), placeMost)
			test.places = append(test.places, placeKey(place[2] != 0, int(native.Uint16(place)), place[8:][:length], place[8+placeMost:][:length]))
		}
		out.payload = append(out.payload, test)
	}
	return out, nil
}

// prefixOf returns the prefix of an address and a mask in IPv6 form. IPv4 is in mapped form.
func prefixOf(a, mask wide) (netip.Prefix, error) {
	length := bits.LeadingZeros64(^mask.hi)
	if length == 64 {
		length += bits.LeadingZeros64(^mask.lo)
	}
	if all := (wide{^uint64(0), ^uint64(0)}); mask != all.masked(length) {
		return netip.Prefix{}, errors.New("a mask of a source is no prefix")
	}
	var b [16]byte
	for i := range 8 {
		b[i], b[8+i] = byte(a.hi>>(56-8*i)), byte(a.lo>>(56-8*i))
	}
	addr := netip.AddrFrom16(b)
	if addr.Is4In6() && length >= 96 {
		return netip.PrefixFrom(addr.Unmap(), length-96), nil
	}
	out := netip.PrefixFrom(addr, length)
	if out.Masked().Contains(netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff})) {
		return out, errors.New("a source has both families")
	}
	return out, nil
}

// Keys in the maps of charges. The first keys are limits, and limits that are tested again. After these come the slots in which packets are observed,
// and the questions about floods, some of which also charge a limit.
const (
	askedAgain = 1 << 20
	observedAt = 1 << 21
	questionAt = 1 << 22
)

// effects contains the side effects of tests, by the keys above.
type effects map[int]*smt.Term

func (e effects) add(c *smt.Context, key int, when *smt.Term) {
	e[key] = c.Or(orFalse(c, e[key]), when)
}

// asks returns a formula that holds if a condition holds. The condition is tested for the packets for which open holds. asks adds the side effects of
// the test to e. The results for the payload, the time, the query and the state are variables, which are named by the test. A rule that only observes
// never decides.
func (r *rulesRun) asks(a *condition, open *smt.Term, e effects) *smt.Term {
	c := r.Context
	holds := c.True()
	if a.until != 0 {
		holds = c.And(holds, c.Var(untilVar(a.until), 0))
	}
	if len(a.sources) > 0 {
		holds = c.And(holds, r.meaning.withinAny(r.meaning.source, a.sources))
	}
	if a.names != "" {
		holds = c.And(holds, c.Var(a.names, 0))
	}
	for i := range a.payload {
		is := c.Var(a.payload[i].name(), 0)
		if a.payload[i].not {
			is = c.Not(is)
		}
		holds = c.And(holds, is)
	}
	if a.reply {
		holds = c.And(holds, c.Var("reply", 0))
	}
	if a.asks != ir.NoFlood {
		e.add(c, questionAt+int(a.asks)<<8+a.flood, c.And(open, holds))
		holds = c.And(holds, c.Var(a.question(), 0))
	}
	if len(a.limits) > 0 {
		over := c.False()
		for _, limit := range a.limits {
			charged := c.And(open, holds, c.Not(over))
			e.add(c, askedAgain+limit, c.And(charged, orFalse(c, e[limit])))
			e.add(c, limit, charged)
			over = c.Or(over, c.Var(overVar(limit, a.judged), 0))
		}
		holds = c.And(holds, over)
	}
	if a.observed != 0 {
		e.add(c, observedAt+a.observed, c.And(open, holds))
		return c.False()
	}
	return holds
}

// found returns assumptions about the texts that the search found: if a test of the payload holds, the search has found one of its texts.
func (r *rulesRun) found() *smt.Term {
	c, out := r.Context, r.True()
	for _, a := range r.conditions.rules {
		for i := range a.payload {
			t := &a.payload[i]
			patterns := uint64(0)
			for bit, text := range r.conditions.texts {
				if slices.Contains(t.texts, text) {
					patterns |= 1 << bit
				}
			}
			if patterns == 0 {
				continue
			}
			has := c.Not(c.Eq(c.BitAnd(c.Var("texts", 64), c.Const(64, patterns)), c.Const(64, 0)))
			out = c.And(out, c.Implies(c.Var(t.name(), 0), has))
		}
	}
	return out
}

// ruleDecision returns the result of decide() for a rule: the slot, the verdict, and flags of bpf/decision.h.
func ruleDecision(p *ir.Program, i int, slot uint32) uint32 {
	const special, protected = 0x10, 0x40
	r := &p.Rules[i]
	decision := slot<<8 | uint32(r.Verdict)
	if r.Sample > 0 || r.Slip > 1 || p.Bans(r) {
		decision |= special
	}
	if r.Protect > 0 {
		decision |= protected
	}
	return decision
}

const conditional = 0x20 // a flag: call decide() again if the condition does not hold
