// SPDX-License-Identifier: Apache-2.0

// This file has the contents that firewalls are filled with: lists of addresses, rules and texts. They are the same in every run, and are written
// in the syntax of each tool.

package rig

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// List is a list of addresses to block, of one family, and of sources to send from.
type List struct {
	Name     string // of results
	Label    string // in tables
	Prefixes []netip.Prefix
	V6       bool
	Hosts    bool         // all prefixes are single addresses
	Listed   []netip.Addr // random picks from the list
	Unlisted []netip.Addr // random addresses that are not in it
	Note     string
}

// MaxSources is the number of different sources of a flood. They are enough to defeat every cache, and few enough for the source to read through
// without a cache miss of its own.
const MaxSources = 1 << 20

// Seed makes the addresses the same in every run.
const Seed = 2016

// RandomHosts returns n different random IPv4 addresses.
func RandomHosts(n int) *List {
	l := &List{Name: fmt.Sprintf("n=%d", n), Label: report.CountText(n) + " random IPv4 addresses", Hosts: true}
	next := hosts()
	l.Prefixes = make([]netip.Prefix, n)
	for i := range l.Prefixes {
		l.Prefixes[i] = netip.PrefixFrom(next(), 32)
	}
	l.Listed = l.picks()
	l.Unlisted = take(min(MaxSources, max(n, 1<<16)), next)
	return l
}

// RandomPrefixes returns n different random IPv6 prefixes of the lengths that blocklists have.
func RandomPrefixes(n int) *List {
	l := &List{Name: fmt.Sprintf("v6/n=%d", n), Label: report.CountText(n) + " random IPv6 prefixes, /32 to /128", V6: true}
	lengths := []int{32, 40, 44, 48, 48, 56, 64, 64, 64, 128}
	r := rand.New(rand.NewPCG(Seed, 6))
	var word uint32
	// No two addresses have the same first 32 bits, so none is in the prefix of another.
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
		l.Prefixes = append(l.Prefixes, p)
	}
	l.Listed = l.picks()
	l.Unlisted = take(min(MaxSources, max(n, 1<<16)), next)
	return l
}

// ReadList reads the IPv4 part of a file in the form that policies take, or its IPv6 part if it has no IPv4 part.
func ReadList(path string) (*List, error) {
	set, entries, err := addrs.ReadFile(path, 0)
	if err != nil {
		return nil, err
	}
	parts := map[bool][]netip.Prefix{}
	for p := range set.Prefixes() {
		parts[p.Addr().Is6()] = append(parts[p.Addr().Is6()], p)
	}
	v6 := len(parts[false]) == 0
	l := &List{Name: "list", V6: v6, Prefixes: parts[v6], Label: fmt.Sprintf("%s: %s entries", path, report.CountText(entries))}
	if len(l.Prefixes) == 0 {
		return nil, fmt.Errorf("list %s: no addresses", path)
	}
	if n := len(parts[!v6]); n > 0 {
		l.Note = fmt.Sprintf("the list's %s prefixes of the other family are left out", report.CountText(n))
	}
	l.Hosts = !slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return !p.IsSingleIP() })
	l.Listed = l.picks()
	r := rand.New(rand.NewPCG(Seed, 4))
	l.Unlisted = take(1<<18, func() netip.Addr {
		for {
			if a := anyUnicast(r, v6); !set.Contains(a) {
				return a
			}
		}
	})
	return l, nil
}

// picks returns random addresses of the list. For a short list of hosts it returns all.
func (l *List) picks() []netip.Addr {
	r := rand.New(rand.NewPCG(Seed, 7))
	step := len(l.Prefixes)/MaxSources + 1
	var from []netip.Addr
	for i := 0; i < len(l.Prefixes); i += step {
		from = append(from, within(r, l.Prefixes[i]))
	}
	return from
}

// within returns a random address of a prefix.
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

// Write writes the list as a text file for a policy, an entry a line.
func (l *List) Write(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<20)
	var line []byte
	for _, p := range l.Prefixes {
		line = append(l.AppendEntry(line[:0], p), '\n')
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// AppendEntry appends an entry in the form that people write: a single address has no prefix length.
func (l *List) AppendEntry(text []byte, p netip.Prefix) []byte {
	if p.IsSingleIP() {
		return p.Addr().AppendTo(text)
	}
	return p.AppendTo(text)
}

// hosts returns a function that returns a different random IPv4 address at each call. Each may be the source of a packet from the Internet.
func hosts() func() netip.Addr {
	var n uint32
	return func() netip.Addr {
		for {
			n++
			if v := scatter(n + Seed); Unicast4(v) {
				return Addr4(v)
			}
		}
	}
}

// anyUnicast returns a random address that may come from the Internet.
func anyUnicast(r *rand.Rand, v6 bool) netip.Addr {
	if v6 {
		return within(r, netip.MustParsePrefix("2400::/12"))
	}
	for {
		if v := r.Uint32(); Unicast4(v) {
			return Addr4(v)
		}
	}
}

// Unicast4 reports whether a host on the Internet may have an address, in host byte order. It returns false for multicast and all higher addresses,
// and for the blocks of the IANA special-purpose registry that are /16 or larger.
func Unicast4(v uint32) bool {
	switch top := v >> 24; {
	case top == 0, top == 10, top == 127, top >= 224:
		return false
	case top == 100, top == 169, top == 172, top == 192, top == 198, top == 203: // only a part of each is special, but enough addresses remain without them
		return false
	}
	return true
}

func word4(a netip.Addr) uint32 {
	bytes := a.As4()
	return binary.BigEndian.Uint32(bytes[:])
}

// Addr4 returns the IPv4 address of a number in host byte order.
func Addr4(v uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

// scatter maps each number to another one. All results are different and without visible order. It is the finalizer of MurmurHash3, each step of
// which can be undone.
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

// Spare removes the addresses of the lab from a list.
func (l *List) Spare() error {
	own := lab.ParseAddrs("10.0.0.0/24 fd00::/64")
	l.Prefixes = slices.DeleteFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Overlaps(own[0]) || p.Overlaps(own[1]) })
	if len(l.Prefixes) == 0 {
		return errors.New("no addresses but those of the lab itself")
	}
	l.Listed = l.picks()
	return nil
}

// Visitor returns a listed address that a client on the Internet may have; false if there is none.
func (l *List) Visitor() (netip.Addr, bool) {
	internet6 := netip.MustParsePrefix("2000::/3")
	i := slices.IndexFunc(l.Listed, func(a netip.Addr) bool {
		if l.V6 {
			return internet6.Contains(a)
		}
		return Unicast4(word4(a))
	})
	if i < 0 {
		return netip.Addr{}, false
	}
	return l.Listed[i], true
}
