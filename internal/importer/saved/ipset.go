// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"
)

// ipsetDims are the parts of the entries of each type of set; nil is a type without equal in the policy.
var ipsetDims = map[string][]Dim{
	"hash:ip": {DimAddr}, "hash:net": {DimAddr}, "bitmap:ip": {DimAddr}, "bitmap:port": {DimPort},
	"hash:ip,port": {DimAddr, DimPort}, "hash:net,port": {DimAddr, DimPort}, "list:set": {DimAddr},
	"bitmap:ip,mac": nil, "hash:mac": nil, "hash:ip,mac": nil, "hash:ip,mark": nil, "hash:ip,port,ip": nil, "hash:ip,port,net": nil,
	"hash:net,net": nil, "hash:net,port,net": nil, "hash:net,iface": nil,
}

// ipsetAliases are names of types from before ipset 6, which ipset still accepts (ipset(8)).
var ipsetAliases = map[string]string{
	"iphash": "hash:ip", "nethash": "hash:net", "ipmap": "bitmap:ip", "portmap": "bitmap:port", "ipporthash": "hash:ip,port",
	"netporthash": "hash:net,port", "setlist": "list:set", "macipmap": "bitmap:ip,mac", "ipportiphash": "hash:ip,port,ip", "ipportnethash": "hash:ip,port,net",
}

// ReadIpset parses the output of ipset save into rs.
func ReadIpset(rs *Ruleset, rep *Report, src Source) error {
	byName := map[string]*Set{}
	var made []*Set
	number := 0
	for line := range strings.SplitSeq(string(src.Data), "\n") {
		number++
		at := Place{File: src.Name, Line: number, Text: strings.TrimSpace(line)}
		words := slices.DeleteFunc(split(at.Text), func(w string) bool { // options about the output, which may be anywhere in the line
			return slices.Contains([]string{"-exist", "-!", "-quiet", "-q"}, w)
		})
		switch {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		case words[0] == "create" && len(words) >= 3:
			s, err := createSet(at, words[1], words[2], words[3:])
			if err != nil {
				return err
			}
			byName[s.Name] = s
			made = append(made, s)
		case words[0] == "add" && len(words) >= 3:
			s := byName[words[1]]
			if s == nil {
				return &InputError{File: at.File, Line: at.Line, Msg: fmt.Sprintf("entry of set %q, which is not created before", words[1]),
					Remedy: "save the sets again: the file lacks its beginning"}
			}
			addEntry(s, rep, at, words[2], words[3:], byName)
		default:
			return &InputError{File: at.File, Line: at.Line, Msg: fmt.Sprintf("%q is neither create nor add", Shorten(at.Text)),
				Remedy: "this is not what ipset save prints"}
		}
	}
	for _, s := range made {
		s.Finish()
	}
	rs.Sets = append(rs.Sets, made...)
	return nil
}

// ipsetSizes are options of create that affect neither the content nor the lookups of a set, with their numbers of arguments.
var ipsetSizes = map[string]int{
	"hashsize": 1, "probes": 1, "resize": 1, "bucketsize": 1, "initval": 1, "size": 1, "gc": 1, "counters": 0, "comment": 0, "skbinfo": 0, "forceadd": 0,
	"range": 1, "from": 1, "to": 1,
}

// createSet parses `create NAME TYPE family inet maxelem N timeout N …`. It returns an error for an unknown word, because the content of the set may
// depend on it.
func createSet(at Place, name, kind string, words []string) (*Set, error) {
	if full, old := ipsetAliases[kind]; old {
		kind = full
	}
	s := &Set{Name: name, At: at, Family: IPv4}
	var known bool
	if s.Dims, known = ipsetDims[kind]; !known {
		return nil, &InputError{File: at.File, Line: at.Line, Msg: fmt.Sprintf("set %s: %q is no type of set", name, kind),
			Remedy: "write create NAME TYPE, as ipset save prints it"}
	}
	if s.Dims == nil {
		s.Problem = "of type " + kind + whyNot(kind)
	}
	if kind == "list:set" {
		s.Family, s.Lists = 0, []*Set{}
	}
	if kind == "bitmap:port" {
		s.Family = IPv4 | IPv6
	}
	for len(words) > 0 {
		count, harmless := ipsetSizes[words[0]]
		if !harmless {
			count = s.option(words)
		}
		if count < 0 || count >= len(words) {
			return nil, &InputError{File: at.File, Line: at.Line, Msg: fmt.Sprintf("set %s: the option %q is not known, or lacks its argument", name, words[0]),
				Remedy: "leave it out if it does not change what the set holds"}
		}
		words = words[1+count:]
	}
	return s, nil
}

// option parses an option of create that affects the content of the set. It returns its number of arguments, or -1 when it is not an option.
func (s *Set) option(words []string) int {
	value := ""
	if len(words) > 1 {
		value = words[1]
	}
	n, ok := Number(value, 1<<31-1)
	switch words[0] {
	case "family", "-6", "-4":
		if value == "inet6" || value == "ipv6" || value == "-6" || words[0] == "-6" {
			s.Family = IPv6
		}
		if words[0] != "family" {
			return 0
		}
	case "timeout":
		s.Dynamic, s.Timeout = true, time.Duration(n)*time.Second
	case "maxelem":
		s.Max = int(n)
	case "netmask":
		s.Length = int(n)
		if !ok {
			s.Problem = "with the netmask " + value
		}
	case "bitmask":
		mask, err := netip.ParseAddr(value)
		length, whole := uint32(0), err == nil
		if whole {
			length, whole = MaskLength(mask)
		}
		if s.Length = int(length); !whole {
			s.Problem = "whose bitmask " + value + " is that of no prefix: a set of a policy holds prefixes"
		}
	case "markmask":
		return 1
	case "wildcard":
		return 0
	default:
		return -1
	}
	return 1
}

// whyNot says why a type of ipset has no equal.
func whyNot(kind string) string {
	switch {
	case strings.Contains(kind, "mac"):
		return ", with hardware addresses, which a policy does not test"
	case strings.Contains(kind, "mark") || strings.Contains(kind, "iface"):
		return ", with marks or devices, which sets of a policy do not hold"
	case strings.Count(kind, "net")+strings.Count(kind, "ip,") > 1 || strings.HasSuffix(kind, ",ip"):
		return ", with pairs of addresses: a set of a policy holds addresses, and a rule asks for one set each of sources and destinations"
	}
	return ""
}

// entryOptions are the options of an entry, with their numbers of arguments.
var entryOptions = map[string]int{"nomatch": 0, "comment": 1, "timeout": 1, "packets": 1, "bytes": 1, "skbmark": 1, "skbprio": 1, "skbqueue": 1}

// addEntry parses `add NAME ENTRY timeout N nomatch comment "…"`.
func addEntry(s *Set, rep *Report, at Place, text string, words []string, byName map[string]*Set) {
	if s.Problem != "" {
		return
	}
	if s.Lists != nil {
		addList(s, text, byName)
		return
	}
	e, ok := entry(s, text)
	if !ok {
		rep.Lose(at, "not an entry that has an equal; the set is imported without it")
		return
	}
	for len(words) > 0 {
		count, known := entryOptions[words[0]]
		if !known || count >= len(words) {
			rep.Lose(at, "the option %q is not known; the set is imported without this entry", words[0])
			return
		}
		switch words[0] {
		case "nomatch":
			e.Except = true
		case "comment":
			e.Comment = words[1]
		}
		words = words[1+count:]
	}
	if e.Except && !s.IsAddrs() {
		s.Problem = "with exceptions of addresses and ports"
		return
	}
	s.Entries = append(s.Entries, e)
}

// addList adds a set to a list of sets.
func addList(s *Set, name string, byName map[string]*Set) {
	l := byName[name]
	switch {
	case l == nil:
		s.Problem = fmt.Sprintf("whose part %s is not in the file", name)
	case l.Problem != "" || !l.IsAddrs():
		s.Problem = fmt.Sprintf("whose part %s has more than addresses in it", name)
	default:
		s.Lists = append(s.Lists, l)
		s.Family |= l.Family
	}
}

// widened returns r in the form in which a set with a netmask stores it: whole prefixes of that length. The kernel masks a packet's address before
// the lookup (kernel net/netfilter/ipset/ip_set_hash_ip.c).
func (s *Set) widened(r netipx.IPRange) netipx.IPRange {
	if s.Length == 0 {
		return r
	}
	first, err1 := r.From().Prefix(s.Length)
	last, err2 := r.To().Prefix(s.Length)
	if err1 != nil || err2 != nil {
		return r
	}
	return netipx.IPRangeFrom(first.Addr(), netipx.PrefixLastIP(last))
}

// entry parses ADDRESS, PORT, or ADDRESS,[PROTO:]PORT.
func entry(s *Set, text string) (e Entry, ok bool) {
	addr, port, _ := strings.Cut(text, ",")
	for _, d := range s.Dims {
		if d == DimAddr {
			if e.Addr, ok = ParseRange(addr); !ok {
				return e, false
			}
			e.Addr = s.widened(e.Addr)
			continue
		}
		if len(s.Dims) == 1 {
			port = addr
		}
		if e.Ports, ok = ipsetPorts(port, len(s.Dims) == 1); !ok {
			return e, false
		}
	}
	return e, true
}

// ipsetPorts parses PROTO:FIRST-LAST. Without a protocol it means TCP, as in ipset, or with any, which is for sets of ports, any protocol.
func ipsetPorts(text string, any bool) (Values, bool) {
	proto, ports, named := strings.Cut(text, ":")
	if !named {
		proto, ports = "tcp", text
	}
	s, ok := PortSpan(ports, "-")
	if !ok {
		return nil, false
	}
	if any {
		return PortsIn(Values{s}, ProtoTCP, ProtoUDP)
	}
	n, ok := ProtoNumbers[proto]
	if !ok || n != ProtoTCP && n != ProtoUDP {
		return nil, false
	}
	return PortsIn(Values{s}, n)
}
