package bench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/addrs"
	"github.com/floodwall/floodwall/internal/lab"
)

// list is addresses to block, of one family, and sources to send from.
type list struct {
	name     string // of results
	label    string // in tables
	prefixes []netip.Prefix
	v6       bool
	hosts    bool         // all prefixes are single addresses
	listed   []netip.Addr // random picks from the list
	unlisted []netip.Addr // random addresses that are not in it
	note     string
}

// maxSources is how many different sources a flood has. They are enough to defeat every cache, and few enough for the
// source to walk through without a miss of its own.
const maxSources = 1 << 20

// seed makes every run measure with the same addresses.
const seed = 2016

// randomHosts is n different random IPv4 addresses.
func randomHosts(n int) *list {
	l := &list{name: fmt.Sprintf("n=%d", n), label: countText(n) + " random IPv4 addresses", hosts: true}
	next := hosts()
	l.prefixes = make([]netip.Prefix, n)
	for i := range l.prefixes {
		l.prefixes[i] = netip.PrefixFrom(next(), 32)
	}
	l.listed = l.picks()
	l.unlisted = take(min(maxSources, max(n, 1<<16)), next)
	return l
}

// randomPrefixes is n different random IPv6 prefixes of the lengths that blocklists have.
func randomPrefixes(n int) *list {
	l := &list{name: fmt.Sprintf("v6/n=%d", n), label: countText(n) + " random IPv6 prefixes, /32 to /128", v6: true}
	lengths := []int{32, 40, 44, 48, 48, 56, 64, 64, 64, 128}
	r := rand.New(rand.NewPCG(seed, 6))
	var word uint32
	// Every address has its first 32 bits for itself, so that none lies in the prefix of another.
	next := func() netip.Addr {
		var a [16]byte
		for i := range 3 {
			binary.BigEndian.PutUint32(a[4+4*i:], r.Uint32())
		}
		for {
			word++
			if top := scatter(word); top>>29 == 1 && top>>16 != 0x2001 && top>>16 != 0x2002 {
				binary.BigEndian.PutUint32(a[:], top)
				return netip.AddrFrom16(a)
			}
		}
	}
	for range n {
		p, _ := next().Prefix(lengths[r.IntN(len(lengths))])
		l.prefixes = append(l.prefixes, p)
	}
	l.listed = l.picks()
	l.unlisted = take(min(maxSources, max(n, 1<<16)), next)
	return l
}

// readList is the IPv4 part of a file, in the form that policies take, or its IPv6 part when there is no other.
func readList(path string) (*list, error) {
	set, entries, err := addrs.ReadFile(path, 0)
	if err != nil {
		return nil, err
	}
	parts := map[bool][]netip.Prefix{}
	for p := range set.Prefixes() {
		parts[p.Addr().Is6()] = append(parts[p.Addr().Is6()], p)
	}
	v6 := len(parts[false]) == 0
	l := &list{name: "list", v6: v6, prefixes: parts[v6], label: fmt.Sprintf("%s: %s entries", path, countText(entries))}
	if len(l.prefixes) == 0 {
		return nil, fmt.Errorf("list %s: no addresses", path)
	}
	if n := len(parts[!v6]); n > 0 {
		l.note = fmt.Sprintf("the list's %s prefixes of the other family are left out", countText(n))
	}
	l.hosts = !slices.ContainsFunc(l.prefixes, func(p netip.Prefix) bool { return !p.IsSingleIP() })
	l.listed = l.picks()
	r := rand.New(rand.NewPCG(seed, 4))
	l.unlisted = take(1<<18, func() netip.Addr {
		for {
			if a := anyUnicast(r, v6); !set.Contains(a) {
				return a
			}
		}
	})
	return l, nil
}

// picks is random addresses of the list: all of a short one of hosts.
func (l *list) picks() []netip.Addr {
	r := rand.New(rand.NewPCG(seed, 7))
	step := len(l.prefixes)/maxSources + 1
	var from []netip.Addr
	for i := 0; i < len(l.prefixes); i += step {
		from = append(from, within(r, l.prefixes[i]))
	}
	return from
}

// within is a random address of a prefix.
func within(r *rand.Rand, p netip.Prefix) netip.Addr {
	a := p.Addr().AsSlice()
	for i := p.Bits(); i < len(a)*8; i++ {
		if r.IntN(2) == 1 {
			a[i/8] |= 0x80 >> (i % 8)
		}
	}
	within, _ := netip.AddrFromSlice(a)
	return within
}

// write writes the list as a text file for a policy, a line each.
func (l *list) write(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<20)
	var line []byte
	for _, p := range l.prefixes {
		line = append(l.appendEntry(line[:0], p), '\n')
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// appendEntry appends an entry as people write it: a single address without its length.
func (l *list) appendEntry(text []byte, p netip.Prefix) []byte {
	if p.IsSingleIP() {
		return p.Addr().AppendTo(text)
	}
	return p.AppendTo(text)
}

// hosts returns a function that returns a different random IPv4 address at each call, of those that may be the source
// of a packet from the Internet.
func hosts() func() netip.Addr {
	var n uint32
	return func() netip.Addr {
		for {
			n++
			if v := scatter(n + seed); unicast4(v) {
				return addr4(v)
			}
		}
	}
}

// anyUnicast is a random address that may come from the Internet.
func anyUnicast(r *rand.Rand, v6 bool) netip.Addr {
	if v6 {
		return within(r, netip.MustParsePrefix("2400::/12"))
	}
	for {
		if v := r.Uint32(); unicast4(v) {
			return addr4(v)
		}
	}
}

// unicast4 leaves out what no host on the Internet has: the blocks of the IANA special-purpose registry that are /16 or
// larger, multicast and above.
func unicast4(v uint32) bool {
	switch top := v >> 24; {
	case top == 0, top == 10, top == 127, top >= 224:
		return false
	case top == 100, top == 169, top == 172, top == 192, top == 198, top == 203: // only in part, but enough remains
		return false
	}
	return true
}

func word4(a netip.Addr) uint32 {
	octets := a.As4()
	return binary.BigEndian.Uint32(octets[:])
}

func addr4(v uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

// scatter maps each number to another one, all different, without visible order: the finalizer of MurmurHash3, whose
// steps can all be undone.
func scatter(v uint32) uint32 {
	v ^= v >> 16
	v *= 0x85ebca6b
	v ^= v >> 13
	v *= 0xc2b2ae35
	return v ^ v>>16
}

func take(n int, next func() netip.Addr) []netip.Addr {
	all := make([]netip.Addr, n)
	for i := range all {
		all[i] = next()
	}
	return all
}

// spare leaves the addresses of the lab out of a list.
func (l *list) spare() error {
	own := lab.ParseAddrs("10.0.0.0/24 fd00::/64")
	l.prefixes = slices.DeleteFunc(l.prefixes, func(p netip.Prefix) bool { return p.Overlaps(own[0]) || p.Overlaps(own[1]) })
	if len(l.prefixes) == 0 {
		return errors.New("no addresses but those of the lab itself")
	}
	l.listed = l.picks()
	return nil
}

// visitor is a listed address that a client on the Internet may have; false when there is none.
func (l *list) visitor() (netip.Addr, bool) {
	internet6 := netip.MustParsePrefix("2000::/3")
	i := slices.IndexFunc(l.listed, func(a netip.Addr) bool {
		if l.v6 {
			return internet6.Contains(a)
		}
		return unicast4(word4(a))
	})
	if i < 0 {
		return netip.Addr{}, false
	}
	return l.listed[i], true
}
