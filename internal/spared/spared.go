// Package spared knows whom no program may ban on this host: prefixes that the policy never has banned, and what the host cannot do
// without.
package spared

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/addrs"
	"github.com/floodwall/floodwall/internal/hostfacts"
)

// List is who is spared at the moment at which it was made.
type List struct {
	never     *addrs.Set
	lifelines []hostfacts.Lifeline
}

// Now is the list of this host, with prefixes of which no part may be banned.
func Now(never []netip.Prefix) *List {
	var b addrs.Builder
	for _, p := range never {
		b.AddRange(p.Masked().Addr(), netipx.PrefixLastIP(p))
	}
	return &List{b.Set(), hostfacts.Lifelines()}
}

// Why says why a prefix is not to be banned, "" when it may be. A prefix inside that of a link may: it is a neighbor.
func (l *List) Why(p netip.Prefix) string {
	var b addrs.Builder
	b.AddRange(p.Masked().Addr(), netipx.PrefixLastIP(p))
	if !l.never.IsEmpty() && l.never.Overlaps(b.Set()) {
		return "has addresses that are never banned, as the policy has them under never, or an operator came from there"
	}
	at := slices.IndexFunc(l.lifelines, func(l hostfacts.Lifeline) bool {
		return p.Bits() <= l.Prefix.Bits() && p.Contains(l.Prefix.Addr())
	})
	if at < 0 {
		return ""
	}
	what := "a link, gateway, resolver or session of this host"
	if l.lifelines[at].Own {
		what = "an address of this host"
	}
	return fmt.Sprintf("has in it %s, %s", addrs.PrefixText(l.lifelines[at].Prefix), what)
}

// Prefixes are the addresses of which no packet is to be dropped that the policy passes: those that are never banned, and each single
// address that this host cannot do without.
func (l *List) Prefixes() (list []netip.Prefix) {
	list = slices.Collect(l.never.Prefixes())
	for _, line := range l.lifelines {
		if line.Prefix.IsSingleIP() {
			list = append(list, line.Prefix)
		}
	}
	return list
}
