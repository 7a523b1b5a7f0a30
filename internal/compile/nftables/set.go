// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// setTable has the sets that the rules of a table use.
type setTable struct {
	program  *ir.Program
	names    names
	named    map[int]Set
	order    []int
	contents map[int]setContent
}

// setContent is the content of a set that never changes, by family.
type setContent [2]familyContent

// familyContent has the ranges of a family in ascending order. They neither overlap nor touch. parts has the same ranges, divided among the sets of
// the table (see divided).
type familyContent struct {
	ranges []netipx.IPRange
	parts  [2][]netipx.IPRange
}

// content returns the content of a set that never changes.
func (s *setTable) content(set int) setContent {
	c, ok := s.contents[set]
	if !ok {
		v4, v6 := ranges4(s.program.Sets[set].Static), ranges6(s.program.Sets[set].Static)
		c = setContent{packet.FamilyIPv4: {v4, divided(v4)}, packet.FamilyIPv6: {v6, divided(v6)}}
		s.contents[set] = c
	}
	return c
}

func ranges4(s *addrs.Set) []netipx.IPRange {
	out := make([]netipx.IPRange, len(s.V4()))
	for i, r := range s.V4() {
		out[i] = r.IPRange()
	}
	return out
}

func ranges6(s *addrs.Set) (out []netipx.IPRange) {
	if s.Size() == len(s.V4()) {
		return nil
	}
	for p := range s.Prefixes() {
		if p.Addr().Is4() {
			continue
		}
		r := netipx.RangeOfPrefix(p)
		if n := len(out); n > 0 && out[n-1].To().Next() == r.From() {
			r = netipx.IPRangeFrom(out[n-1].From(), r.To())
			out = out[:n-1]
		}
		out = append(out, r)
	}
	return out
}

// use adds a set to the table unless the table already has it. It returns the names of the set. If the set has no name in the policy, it is named
// after the rule.
func (s *setTable) use(set int, rule string) Set {
	if have, ok := s.named[set]; ok {
		return have
	}
	name := s.program.Sets[set].Name
	if name == "" {
		name = rule
	}
	if name == "" || !isLetter(rune(name[0])) {
		name = "set-" + name
	}
	out := Set{Dynamic: s.program.Sets[set].Dynamic != nil, Live: s.program.Sets[set].Live}
	if out.Dynamic || out.Live {
		out.V4, out.V6, out.Nets4, out.Nets6 = s.names.add(name+"-v4"), s.names.add(name+"-v6"), s.names.add(name+"-nets-v4"), s.names.add(name+"-nets-v6")
	} else {
		out.V4, out.Nets4 = s.partNames(name, "v4", s.content(set)[packet.FamilyIPv4].parts)
		out.V6, out.Nets6 = s.partNames(name, "v6", s.content(set)[packet.FamilyIPv6].parts)
	}
	s.named[set] = out
	s.order = append(s.order, set)
	return out
}

// partNames returns the names of the table's sets for one family of a set that never changes.
func (s *setTable) partNames(name, family string, parts [2][]netipx.IPRange) (first, nets string) {
	if len(parts[0]) > 0 {
		first = s.names.add(name + "-" + family)
	}
	if len(parts[1]) > 0 {
		nets = s.names.add(name + "-nets-" + family)
	}
	return first, nets
}

// manyAddresses is the number of addresses from which a list with ranges gets a separate hash for its addresses. A packet then needs two lookups,
// which only pays off for a large list: there, two lookups are faster than one lookup in a tree.
const manyAddresses = 1000

// divided divides the content of a family among the sets of the table. If there are only addresses, they form a hash. Addresses and ranges together
// form a tree. If there are many addresses and some ranges, the addresses form a hash and the ranges form a tree.
func divided(content []netipx.IPRange) (parts [2][]netipx.IPRange) {
	addresses, ranges := plan.Addresses(content)
	if len(content) == 1 || len(ranges) > 0 && len(addresses) < manyAddresses {
		return [2][]netipx.IPRange{content}
	}
	return [2][]netipx.IPRange{addresses, ranges}
}

// of returns the names of the sets for a family. "" means that there is none.
func (n Set) of(family uint32) [2]string {
	return [...][2]string{packet.FamilyIPv4: {n.V4, n.Nets4}, packet.FamilyIPv6: {n.V6, n.Nets6}}[family]
}

// write writes the definitions of all sets.
func (s *setTable) write(b *strings.Builder) {
	for _, set := range s.order {
		names := s.named[set]
		if d := s.program.Sets[set].Dynamic; d != nil {
			for family, name := range []string{names.V4, names.V6} {
				s.writeDynamic(b, set, name, family, "timeout", 1)
			}
			// Before Linux 6.15 each end of an interval counts as an element.
			for family, name := range []string{names.Nets4, names.Nets6} {
				s.writeDynamic(b, set, name, family, "interval,timeout", 2)
			}
			continue
		}
		for family := range uint32(len(addressTypes)) {
			parts := [2][]netipx.IPRange{}
			if !names.Live {
				parts = s.content(set)[family].parts
			}
			for i, name := range names.of(family) {
				if name != "" {
					writeStatic(b, name, int(family), parts[i], names.Live && i == 1)
				}
			}
		}
	}
}

var addressTypes = [...]string{packet.FamilyIPv4: "ipv4_addr", packet.FamilyIPv6: "ipv6_addr"}

// writeDynamic writes the declaration of a set with space for twice its max. Expired entries take space until the kernel collects them, and a new
// entry is added before the entry that it replaces is removed. Floodwall itself enforces max.
func (s *setTable) writeDynamic(b *strings.Builder, set int, name string, family int, flags string, ends int) {
	fmt.Fprintf(b, "\tset %s {\n\t\ttype %s\n\t\tsize %d\n\t\tflags %s\n", name, addressTypes[family], 2*s.program.Sets[set].Max*ends, flags)
	if timeout := s.program.Sets[set].Dynamic.Timeout; timeout > 0 {
		fmt.Fprintf(b, "\t\ttimeout %s\n", durationText(int64(timeout.Seconds())))
	}
	b.WriteString("\t}\n\n")
}

// durationText formats seconds in the form of nft.
func durationText(seconds int64) (text string) {
	for _, unit := range []struct {
		letter string
		size   int64
	}{{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}} {
		if n := seconds / unit.size; n > 0 {
			text += fmt.Sprintf("%d%s", n, unit.letter)
			seconds %= unit.size
		}
	}
	return text
}

// writeStatic writes a set with its elements. A set that has only addresses is a hash, which is faster than a set of intervals.
func writeStatic(b *strings.Builder, name string, family int, content []netipx.IPRange, intervals bool) {
	fmt.Fprintf(b, "\tset %s {\n\t\ttype %s\n", name, addressTypes[family])
	if intervals || slices.ContainsFunc(content, func(r netipx.IPRange) bool { return r.From() != r.To() }) {
		b.WriteString("\t\tflags interval\n")
	}
	if len(content) == 0 { // the elements are added later
		b.WriteString("\t}\n\n")
		return
	}
	b.WriteString("\t\telements = {")
	line := make([]byte, 0, 128)
	for i, r := range content {
		if len(line) == 0 {
			b.WriteString("\n\t\t\t")
		} else {
			line = append(line, ' ')
		}
		if line = appendRange(line, r); i < len(content)-1 {
			line = append(line, ',')
		}
		if len(line) > 80 || i == len(content)-1 {
			b.Write(line)
			line = line[:0]
		}
	}
	b.WriteString("\n\t\t}\n\t}\n\n")
}

// appendRange writes a range as an address, a prefix or both ends.
func appendRange(b []byte, r netipx.IPRange) []byte {
	if r.From() == r.To() {
		return r.From().AppendTo(b)
	}
	if p, ok := r.Prefix(); ok {
		return p.AppendTo(b)
	}
	return r.To().AppendTo(append(r.From().AppendTo(b), '-'))
}
