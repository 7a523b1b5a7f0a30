package allowlist

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// List is who is spared at the moment at which it was made.
type List struct {
	never *addrs.Set
	nets  []facts.Lifeline // those of links
	hosts []facts.Lifeline // single addresses, sorted: a fleet has thousands
}

// Now is the list of this host, with prefixes of which no part may be banned.
func Now(never []netip.Prefix) *List {
	var b addrs.Builder
	for _, p := range never {
		b.AddRange(p.Masked().Addr(), netipx.PrefixLastIP(p))
	}
	l := &List{never: b.Set()}
	for _, line := range facts.Lifelines() {
		if line.Prefix.IsSingleIP() {
			l.hosts = append(l.hosts, line)
		} else {
			l.nets = append(l.nets, line)
		}
	}
	slices.SortStableFunc(l.hosts, func(a, b facts.Lifeline) int { return a.Prefix.Addr().Compare(b.Prefix.Addr()) })
	return l
}

// Why says why a prefix is not to be banned, "" when it may be. A prefix inside that of a link may: it is a neighbor.
func (l *List) Why(p netip.Prefix) string {
	if !l.never.IsEmpty() {
		var b addrs.Builder
		b.AddRange(p.Masked().Addr(), netipx.PrefixLastIP(p))
		if l.never.Overlaps(b.Set()) {
			return "has addresses that are never banned, as the policy has them under never, or an operator came from there"
		}
	}
	line, ok := l.lifeline(p)
	if !ok {
		return ""
	}
	what := "a link, gateway, resolver or session of this host"
	switch {
	case line.Own:
		what = "an address of this host"
	case line.Fleet:
		what = "a hub or a node of the fleet"
	}
	return fmt.Sprintf("has in it %s, %s", addrs.PrefixText(line.Prefix), what)
}

// lifeline is the first one that a prefix has in it.
func (l *List) lifeline(p netip.Prefix) (facts.Lifeline, bool) {
	at, _ := slices.BinarySearchFunc(l.hosts, p.Masked().Addr(), func(l facts.Lifeline, a netip.Addr) int { return l.Prefix.Addr().Compare(a) })
	if at < len(l.hosts) && p.Contains(l.hosts[at].Prefix.Addr()) {
		return l.hosts[at], true
	}
	for _, line := range l.nets {
		if p.Bits() <= line.Prefix.Bits() && p.Contains(line.Prefix.Addr()) {
			return line, true
		}
	}
	return facts.Lifeline{}, false
}

// Prefixes are the addresses of which no packet is to be dropped that the policy passes: those that are never banned, and each single
// address that this host cannot do without.
func (l *List) Prefixes() (list []netip.Prefix) {
	list = slices.Collect(l.never.Prefixes())
	for _, line := range l.hosts {
		list = append(list, line.Prefix)
	}
	return list
}
