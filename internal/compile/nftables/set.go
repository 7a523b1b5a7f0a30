package nftables

import (
	"fmt"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// setTable are the sets that the rules of a table ask for.
type setTable struct {
	program  *ir.Program
	names    names
	named    map[int]Set
	order    []int
	contents map[int]setContent
}

// setContent is what a set that never changes holds of each family, in ascending order; ranges neither overlap nor touch.
type setContent [2][]netipx.IPRange

// content reads a set that never changes.
func (s *setTable) content(set int) setContent {
	c, ok := s.contents[set]
	if !ok {
		c = setContent{packet.FamilyIPv4: ranges4(s.program.Sets[set].Static), packet.FamilyIPv6: ranges6(s.program.Sets[set].Static)}
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

// use puts a set into the table, unless it is there, and returns its names. rule names a set that has no name.
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
	var out Set
	if s.program.Sets[set].Dynamic != nil {
		out = Set{s.names.add(name + "-v4"), s.names.add(name + "-v6"), s.names.add(name + "-nets-v4"), s.names.add(name + "-nets-v6"), true, false}
	} else if s.program.Sets[set].Live {
		out = Set{V4: s.names.add(name + "-v4"), V6: s.names.add(name + "-v6"), Live: true}
	} else {
		c := s.content(set)
		if len(c[packet.FamilyIPv4]) > 0 {
			out.V4 = s.names.add(name + "-v4")
		}
		if len(c[packet.FamilyIPv6]) > 0 {
			out.V6 = s.names.add(name + "-v6")
		}
	}
	s.named[set] = out
	s.order = append(s.order, set)
	return out
}

// write writes the definitions of all sets.
func (s *setTable) write(b *strings.Builder) {
	for _, set := range s.order {
		names := s.named[set]
		if d := s.program.Sets[set].Dynamic; d != nil {
			for family, name := range []string{names.V4, names.V6} {
				s.writeDynamic(b, set, name, family, "timeout", 1)
			}
			// Before Linux 6.15 each end of an interval counts.
			for family, name := range []string{names.Nets4, names.Nets6} {
				s.writeDynamic(b, set, name, family, "interval,timeout", 2)
			}
			continue
		}
		for family, name := range []string{names.V4, names.V6} {
			if names.Live {
				fmt.Fprintf(b, "\tset %s {\n\t\ttype %s\n\t\tflags interval\n\t}\n\n", name, addressTypes[family])
			} else if name != "" {
				writeStatic(b, name, family, s.content(set)[family])
			}
		}
	}
}

var addressTypes = [...]string{packet.FamilyIPv4: "ipv4_addr", packet.FamilyIPv6: "ipv6_addr"}

// writeDynamic declares a set with space for twice its entries: those that have expired take space until the kernel collects them, and new
// ones come before those go that give way. Floodwall keeps to the max.
func (s *setTable) writeDynamic(b *strings.Builder, set int, name string, family int, flags string, ends int) {
	fmt.Fprintf(b, "\tset %s {\n\t\ttype %s\n\t\tsize %d\n\t\tflags %s\n", name, addressTypes[family], 2*s.program.Sets[set].Max*ends, flags)
	if timeout := s.program.Sets[set].Dynamic.Timeout; timeout > 0 {
		fmt.Fprintf(b, "\t\ttimeout %s\n", durationText(int64(timeout.Seconds())))
	}
	b.WriteString("\t}\n\n")
}

// durationText writes seconds as nft does.
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

// writeStatic writes a set with its elements. One of addresses alone is a hash, which is faster than intervals.
func writeStatic(b *strings.Builder, name string, family int, content []netipx.IPRange) {
	fmt.Fprintf(b, "\tset %s {\n\t\ttype %s\n", name, addressTypes[family])
	if slices.ContainsFunc(content, func(r netipx.IPRange) bool { return r.From() != r.To() }) {
		b.WriteString("\t\tflags interval\n")
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
