// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// l4Line has the tests of one line for the L4 header, in one family. All lines of a rule end with its verdict, so a packet that matches several lines
// is counted only once.
type l4Line struct {
	proto    []ir.Range // the protocols of packets that can match
	fragment []ir.Range // the values of packet.Fragment that can match; nil: all that reach the chain
	header   []ir.Match // the tests of ports, flags and types
}

// fragmentSet is the set of values of packet.Fragment for the packets that reach a chain. In a later fragment, the kernel would read data as ports,
// flags and types (net/netfilter/nf_tables_core.c, nft_payload_fast_eval). So later fragments do not reach chains with such tests.
type fragmentSet []ir.Range

var (
	anyFragment    = fragmentSet{{First: packet.FragmentNone, Last: packet.FragmentLater}}
	firstFragment  = fragmentSet{match.WithHeader}
	laterFragments = fragmentSet{match.LaterFragment.Fragment()}
)

// l4Lines returns the lines that a rule needs in a chain, for one family. of is the set of fragments that reach the chain. Branches of the rule are
// merged into one line if possible.
func l4Lines(r *ir.Rule, family uint32, of fragmentSet) (lines []l4Line) {
	for _, b := range match.Branches(r) {
		line := l4Line{proto: match.AllProtocols, fragment: anyFragment}
		if b.Kind != match.Any {
			line.proto, line.fragment = b.Kind.Proto(), []ir.Range{b.Kind.Fragment()}
		}
		for _, m := range b.Tests {
			switch {
			case m.Field == packet.Proto:
				line.proto = m.Values
			case m.Field == packet.Fragment:
				line.fragment = m.Values
			case match.IsHeader(m.Field):
				line.header = append(line.header, m)
			}
		}
		line.fragment = ranges.Common(line.fragment, of, packet.Fragment.Size())
		if len(line.fragment) == 0 || !slices.Contains(b.Families, family) {
			continue
		}
		if slices.Equal(line.fragment, of) {
			line.fragment = nil
		}
		lines = appendLine(lines, line)
	}
	return lines
}

// appendLine adds a line to lines. If lines already has a line with the same tests for other protocols, appendLine adds the protocols to that line.
func appendLine(lines []l4Line, line l4Line) []l4Line {
	i := slices.IndexFunc(lines, func(l l4Line) bool {
		return slices.Equal(l.fragment, line.fragment) && slices.EqualFunc(l.header, line.header, sameTest)
	})
	if i < 0 {
		return append(lines, line)
	}
	lines[i].proto = ranges.Normalize(slices.Concat(lines[i].proto, line.proto))
	return lines
}

func sameTest(a, b ir.Match) bool { return a.Field == b.Field && slices.Equal(a.Values, b.Values) }

// apartTCP splits lines so that each line is either only for TCP or only for other protocols.
func apartTCP(lines []l4Line) (out []l4Line) {
	for _, l := range lines {
		tcp := ranges.Common(l.proto, ranges.Of(packet.ProtoTCP), packet.Proto.Size())
		for _, proto := range [...][]ir.Range{tcp, plan.ProtosWithout(l.proto, tcp)} {
			if l.proto = proto; len(proto) > 0 {
				out = append(out, l)
			}
		}
	}
	return out
}
