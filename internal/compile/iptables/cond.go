// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"go4.org/netipx"
)

// lineTests are the tests of one line of iptables. All of them must hold.
type lineTests struct {
	addrs  []addrTest
	proto  string   // tcp, "! tcp" …; "" is any
	header []string // options of the match with the protocol's name; a line can use that match only once
	match  []string // other matches with their -m, and the option -f
	whole  bool     // the tests exclude later fragments
}

// addrTest tests whether an address is in a prefix or, with not, whether it is outside.
type addrTest struct {
	side   int // 0 is the source, 1 the destination
	not    bool
	prefix netip.Prefix
}

func (a lineTests) and(b lineTests) lineTests {
	if b.proto != "" {
		a.proto = b.proto
	}
	a.addrs = slices.Concat(a.addrs, b.addrs)
	a.header = slices.Concat(a.header, b.header)
	if slices.Contains(a.match, notLater) || slices.Contains(a.match, isLater) { // iptables accepts each of them only once
		b.match = slices.DeleteFunc(slices.Clone(b.match), func(m string) bool {
			return (m == notLater || m == isLater) && slices.Contains(a.match, m)
		})
	}
	a.match = slices.Concat(a.match, b.match)
	a.whole = a.whole || b.whole
	return a
}

// never reports whether no packet can match, because the tests require a later fragment and exclude later fragments.
func (a lineTests) never() bool {
	return slices.Contains(a.match, notLater) && slices.Contains(a.match, isLater)
}

// String returns the tests in the syntax of iptables, with a space behind each.
func (a lineTests) String() string {
	var words, matches []string // tests of the IP header itself come first
	used := [2]bool{}
	for _, addr := range a.addrs {
		if used[addr.side] {
			matches = append(matches, addr.iprange())
			continue
		}
		used[addr.side] = true
		words = append(words, negated(addr.not)+[2]string{"-s ", "-d "}[addr.side]+addrs.PrefixText(addr.prefix))
	}
	if name, not := strings.CutPrefix(a.proto, "! "); a.proto != "" {
		words = append(words, negated(not)+"-p "+name)
	}
	if len(a.header) > 0 {
		matches = slices.Insert(matches, 0, "-m "+headerMatch[a.proto]+" "+strings.Join(a.header, " "))
	}
	for _, m := range a.match {
		if strings.HasPrefix(m, "-m ") {
			matches = append(matches, m)
		} else {
			words = append(words, m)
		}
	}
	return strings.Join(append(slices.Concat(words, localLast(matches)), ""), " ")
}

// localLast moves tests of the host's own addresses behind cheaper tests, because they search the routing table. Limits and text searches stay last,
// so that they apply only to packets that match all other tests.
func localLast(matches []string) []string {
	for i := len(matches) - 2; i >= 0; i-- {
		for j := i; j+1 < len(matches) && isLocalTest(matches[j]) && !isDear(matches[j+1]); j++ {
			matches[j], matches[j+1] = matches[j+1], matches[j]
		}
	}
	return matches
}

func isLocalTest(match string) bool { return strings.HasPrefix(match, "-m addrtype ") }

func isDear(match string) bool {
	return slices.ContainsFunc([]string{"-m hashlimit ", "-m string ", "-m u32 "}, func(name string) bool {
		return strings.HasPrefix(match, name)
	})
}

// headerMatch has the name of the match that reads the header of a protocol.
var headerMatch = map[string]string{"tcp": "tcp", "udp": "udp", "icmp": "icmp", "ipv6-icmp": "icmp6"}

// iprange returns the test as a match iprange. A line can have several such matches.
func (a addrTest) iprange() string {
	r := netipx.RangeOfPrefix(a.prefix)
	return rangeMatch(a.side, a.not, r.From(), r.To())
}

func rangeMatch(side int, not bool, first, last netip.Addr) string {
	return "-m iprange " + negated(not) + [2]string{"--src-range ", "--dst-range "}[side] + first.String() + "-" + last.String()
}

func negated(not bool) string {
	if not {
		return "! "
	}
	return ""
}

// condition holds if at least one of any holds and none of not holds.
type condition struct{ any, not []lineTests }

// always returns a condition that holds for every packet. The zero value condition{} holds for no packet.
func always() condition { return all(lineTests{}) }

func all(a lineTests) condition { return condition{any: []lineTests{a}} }

// matching returns the condition that all of the given matches hold.
func matching(match ...string) condition { return all(lineTests{match: match}) }

// and returns the condition that both c and d hold. It combines each alternative of c with each of d.
func (c condition) and(d condition) condition {
	out := condition{not: slices.Concat(c.not, d.not)}
	for _, a := range c.any {
		for _, b := range d.any {
			out.any = append(out.any, a.and(b))
		}
	}
	return out
}

// either returns the shorter of two forms of a test. The first form is the alternatives is. The second form is the exceptions isNot, which are tests
// of the opposite. If the rule passes packets, it prefers alternatives, because exceptions are expensive there.
func (f *familyBuilder) either(is, isNot []lineTests) condition {
	const enough = 32
	if len(is) <= len(isNot) || f.passing && len(is) <= enough {
		return condition{any: is}
	}
	return condition{any: []lineTests{{}}, not: isNot}
}
