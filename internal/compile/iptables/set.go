// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"math/bits"
	"net/netip"
	"time"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Entries returns the entries of an ipset that together represent a prefix, and the name of the ipset. The name is "" if no rule uses addresses of
// that family. ipset has no entry for all addresses, so the prefix of all addresses becomes two entries.
func (s Set) Entries(p netip.Prefix) (name string, entries []string) {
	for _, half := range halves(p.Masked()) {
		entries = append(entries, addrs.PrefixText(half))
	}
	if p.Addr().Is4() {
		return s.V4, entries
	}
	return s.V6, entries
}

// familyEnding is the suffix of the names of a set's two ipsets.
var familyEnding = [2]string{packet.FamilyIPv4: "-4", packet.FamilyIPv6: "-6"}

// ipsetName returns the name of a set's ipset in this family. The first call creates the ipset.
func (f *familyBuilder) ipsetName(set int) string {
	base, ok := f.bases[set]
	if !ok {
		what := f.sets[set].Name
		if what == "" {
			what = fmt.Sprintf("list%d", set)
		}
		base = f.names.take(f.o.Name+"-"+what, maxSetName-len(familyEnding[0]))
		f.bases[set] = base
	}
	name := base + familyEnding[f.family]
	if !f.made[name] {
		f.made[name] = true
		f.makeSet(set, name)
	}
	return name
}

func (f *familyBuilder) makeSet(set int, name string) {
	s := &f.sets[set]
	if s.Dynamic != nil {
		f.makeDynamic(s, name)
	} else if s.Live {
		fmt.Fprintf(&f.ipset, "%s\n", LiveSet(name, f.family == packet.FamilyIPv6, s.Static.Size()))
	} else {
		f.makeStatic(s.Static, name)
	}
	if set >= len(f.pl.Program.Sets) {
		return // a list that belongs to a check, not to the program
	}
	made := f.out.Sets[set]
	*[2]*string{&made.V4, &made.V6}[f.family] = name
	if s.Dynamic != nil {
		made.Dynamic, made.Timeout = true, s.Dynamic.Timeout
	}
	made.Live = s.Live
	f.out.Sets[set] = made
}

// maxTimeout is the longest timeout of an ipset entry (IPSET_MAX_TIMEOUT of the kernel, in seconds).
const maxTimeout = (1<<32 - 1) / 2 / 1000

func (f *familyBuilder) makeDynamic(s *ir.Set, name string) {
	seconds := int64((s.Dynamic.Timeout + time.Second - 1) / time.Second)
	if seconds > maxTimeout {
		f.err = &Error{
			fmt.Sprintf("set %q: timeout: ipset keeps an entry for %d seconds at most, and %d are asked for", s.Name, maxTimeout, seconds),
			"shorten it, leave it out so that entries stay for ever, or use --target xdp"}
	}
	f.create(name, "hash:net", min(s.Max, 1<<18), 2*s.Max, fmt.Sprintf(" timeout %d comment", seconds))
}

// makeStatic creates a set of addresses if possible, because a test of such a set is a single lookup. Otherwise it creates a set of prefixes, which
// takes a lookup for each prefix length that occurs. A set of addresses cannot contain the unspecified address.
func (f *familyBuilder) makeStatic(s *addrs.Set, name string) {
	var ranges []netipx.IPRange
	var entries []netip.Prefix
	f.prefixes(s, func(p netip.Prefix) bool {
		ranges, entries = append(ranges, netipx.RangeOfPrefix(p)), append(entries, halves(p)...)
		return true
	})
	kind := "hash:net"
	if addresses, wider := plan.Addresses(ranges); len(wider) == 0 && (len(addresses) == 0 || !addresses[0].From().IsUnspecified()) {
		kind, entries = "hash:ip", entries[:0]
		for _, r := range addresses {
			entries = append(entries, netip.PrefixFrom(r.From(), r.From().BitLen()))
		}
	}
	f.create(name, kind, len(entries), len(entries), "")
	for _, p := range entries {
		fmt.Fprintf(&f.ipset, "add %s %s\n", name, addrs.PrefixText(p))
	}
}

// halves returns the prefix itself. For the prefix of all addresses, it returns the two halves of the prefix, because ipset cannot store that prefix.
func halves(p netip.Prefix) []netip.Prefix {
	if p.Bits() > 0 {
		return []netip.Prefix{p}
	}
	octets := p.Addr().AsSlice()
	octets[0] = 0x80
	upper, _ := netip.AddrFromSlice(octets)
	return []netip.Prefix{netip.PrefixFrom(p.Addr(), 1), netip.PrefixFrom(upper, 1)}
}

// LiveSet returns the line that creates a set whose entries are replaced at run time. entries is its capacity. The set has a timeout option that no
// entry uses. By this option, the code that verifies sets recognizes a set whose entries change.
func LiveSet(name string, six bool, entries int) string {
	family := "inet"
	if six {
		family = "inet6"
	}
	return fmt.Sprintf("create %s hash:net family %s hashsize %d maxelem %d timeout 0", name, family, hashSize(entries), max(2*entries, 1<<16))
}

// create writes the line that creates a hash set. It has about one bucket for four expected entries.
func (f *familyBuilder) create(name, kind string, expected, most int, more string) {
	fmt.Fprintf(&f.ipset, "create %s %s family %s hashsize %d maxelem %d%s\n",
		name, kind, [2]string{"inet", "inet6"}[f.family], hashSize(expected), max(most, 1), more)
}

func hashSize(entries int) int {
	const least = 64 // IPSET_MIMINAL_HASHSIZE of the kernel
	return max(least, 1<<bits.Len(uint(entries/4)))
}

// portSet returns the name of a set of ports. Both families and both protocols share the set.
func (b *builder) portSet(values []ir.Range) string {
	content := joinRanges(values, "-")
	if name, ok := b.ports[content]; ok {
		return name
	}
	what := fmt.Sprintf("ports%d", len(b.ports)+1)
	if len(values) == 1 {
		what = "port-" + content
	}
	name := b.names.take(b.o.Name+"-"+what, maxSetName)
	b.ports[content] = name
	fmt.Fprintf(&b.ipset, "create %s bitmap:port range 0-65535\n", name)
	for _, r := range values {
		fmt.Fprintf(&b.ipset, "add %s %s\n", name, rangeText(r, "-"))
	}
	return name
}
