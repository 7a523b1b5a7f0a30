// SPDX-License-Identifier: Apache-2.0

package allowlist

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// List has the prefixes that no program may ban. It is a snapshot.
type List struct {
	never *addrs.Set
	nets  []facts.Lifeline // prefixes of links
	hosts []facts.Lifeline // single addresses, sorted for a binary search: a fleet has thousands
}

// Now returns the present list of this host. `never` are prefixes that must not be banned, not even in part.
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

// Why returns the reason why a prefix may not be banned. It returns "" when the prefix may be banned. A prefix inside the prefix of a link may be
// banned, because it is a neighbor.
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

// lifeline returns the first lifeline that the prefix p contains.
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

// Prefixes returns the addresses whose packets temporary rules must not drop: the addresses that are never banned, and each single address that this
// host needs.
func (l *List) Prefixes() (list []netip.Prefix) {
	list = slices.Collect(l.never.Prefixes())
	for _, line := range l.hosts {
		list = append(list, line.Prefix)
	}
	return list
}
