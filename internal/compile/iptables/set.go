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

// Entries are the entries that stand for a prefix, and the name of the ipset that they belong into, "" when no rule asks
// for addresses of that family. ipset has no entry for all addresses.
func (s Set) Entries(p netip.Prefix) (name string, entries []string) {
	for _, half := range halves(p.Masked()) {
		entries = append(entries, addrs.PrefixText(half))
	}
	if p.Addr().Is4() {
		return s.V4, entries
	}
	return s.V6, entries
}

// familyEnding tells the two ipsets of a set apart.
var familyEnding = [2]string{packet.FamilyIPv4: "-4", packet.FamilyIPv6: "-6"}

// ipsetName is the name of the ipset of a set in this family, which is made when it is first asked for.
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
		return // a list of a check
	}
	made := f.out.Sets[set]
	*[2]*string{&made.V4, &made.V6}[f.family] = name
	if s.Dynamic != nil {
		made.Dynamic, made.Timeout = true, s.Dynamic.Timeout
	}
	made.Live = s.Live
	f.out.Sets[set] = made
}

// maxTimeout is the longest time that ipset keeps an entry for (IPSET_MAX_TIMEOUT of the kernel, in seconds).
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

// makeStatic makes a set of addresses, if possible, which is looked up once, and else one of prefixes, which is looked
// up for each length that occurs. A set of addresses cannot have the unspecified one.
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

// halves are the two halves of the prefix of all addresses, which ipset cannot have.
func halves(p netip.Prefix) []netip.Prefix {
	if p.Bits() > 0 {
		return []netip.Prefix{p}
	}
	octets := p.Addr().AsSlice()
	octets[0] = 0x80
	upper, _ := netip.AddrFromSlice(octets)
	return []netip.Prefix{netip.PrefixFrom(p.Addr(), 1), netip.PrefixFrom(upper, 1)}
}

// LiveSet is the line that makes a set whose entries are exchanged, with space for so many. Its timeout, which no entry has,
// tells those who verify the set that its entries change.
func LiveSet(name string, six bool, entries int) string {
	family := "inet"
	if six {
		family = "inet6"
	}
	return fmt.Sprintf("create %s hash:net family %s hashsize %d maxelem %d timeout 0", name, family, hashSize(entries), max(2*entries, 1<<16))
}

// create writes the line that makes a hash, with a bucket for about four of the entries that are expected.
func (f *familyBuilder) create(name, kind string, expected, most int, more string) {
	fmt.Fprintf(&f.ipset, "create %s %s family %s hashsize %d maxelem %d%s\n",
		name, kind, [2]string{"inet", "inet6"}[f.family], hashSize(expected), max(most, 1), more)
}

func hashSize(entries int) int {
	const least = 64 // IPSET_MIMINAL_HASHSIZE of the kernel
	return max(least, 1<<bits.Len(uint(entries/4)))
}

// portSet is the name of a set of ports, which serves both families and both protocols.
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
