package nftables

import (
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// l4Line is one line's part of a rule that is about what follows the IP header, for one family. All lines of a rule end
// with its verdict, so a packet that could match several is counted once.
type l4Line struct {
	proto    []ir.Range // that the packet may have
	fragment []ir.Range // which of a datagram's fragments it may be; nil is any that the chain has
	header   []ir.Match // tests of ports, flags, types
}

// fragmentSet are which fragments of datagrams come to a chain. The kernel reads ports, flags and types of a later
// fragment at wherever they would be (net/netfilter/nf_tables_core.c, nft_payload_fast_eval), so chains with such tests
// have none of them.
type fragmentSet []ir.Range

var (
	anyFragment    = fragmentSet{{First: packet.FragmentNone, Last: packet.FragmentLater}}
	firstFragment  = fragmentSet{match.WithHeader}
	laterFragments = fragmentSet{match.LaterFragment.Fragment()}
)

// l4Lines are the lines that a rule needs in a chain of a family, as few as branches of kinds can be put together to.
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

// appendLine adds a line, or its protocols to one that is the same but for them.
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

// apartTCP makes lines of which each is for TCP alone or for other protocols.
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
