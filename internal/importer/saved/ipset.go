package saved

import (
	"fmt"
	"strings"
	"time"
)

// ipsetDims are the parts of the entries of the set types that the policy has an equal for.
var ipsetDims = map[string][]Dim{
	"hash:ip": {DimAddr}, "hash:net": {DimAddr}, "bitmap:ip": {DimAddr}, "bitmap:port": {DimPort},
	"hash:ip,port": {DimAddr, DimPort}, "hash:net,port": {DimAddr, DimPort}, "list:set": {DimAddr},
}

// ReadIpset reads the output of ipset save into rs.
func ReadIpset(rs *Ruleset, rep *Report, src Source) error {
	byName := map[string]*Set{}
	var made []*Set
	number := 0
	for line := range strings.SplitSeq(string(src.Data), "\n") {
		number++
		at := Place{File: src.Name, Line: number, Text: strings.TrimSpace(line)}
		words := split(at.Text)
		switch {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		case words[0] == "create" && len(words) >= 3:
			s := createSet(at, words[1], words[2], words[3:])
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

// createSet reads `create NAME TYPE family inet maxelem N timeout N …`.
func createSet(at Place, name, kind string, words []string) *Set {
	s := &Set{Name: name, At: at, Family: IPv4}
	var known bool
	if s.Dims, known = ipsetDims[kind]; !known {
		s.Problem = "of type " + kind + whyNot(kind)
	}
	if kind == "list:set" {
		s.Family, s.Lists = 0, []*Set{}
	}
	if kind == "bitmap:port" {
		s.Family = IPv4 | IPv6
	}
	for i := 0; i+1 < len(words); i++ {
		switch n, _ := Number(words[i+1], 1<<31-1); words[i] {
		case "family":
			if words[i+1] == "inet6" {
				s.Family = IPv6
			}
		case "timeout":
			s.Dynamic, s.Timeout = true, time.Duration(n)*time.Second
		case "maxelem":
			s.Max = int(n)
		}
	}
	return s
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

// addEntry reads `add NAME ENTRY timeout N nomatch comment "…"`.
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
	for i, w := range words {
		switch {
		case w == "nomatch":
			e.Except = true
		case w == "comment" && i+1 < len(words):
			e.Comment = words[i+1]
		}
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

// entry reads ADDRESS, PORT, or ADDRESS,[PROTO:]PORT.
func entry(s *Set, text string) (e Entry, ok bool) {
	addr, port, _ := strings.Cut(text, ",")
	for _, d := range s.Dims {
		if d == DimAddr {
			if e.Addr, ok = ParseRange(addr); !ok {
				return e, false
			}
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

// ipsetPorts reads PROTO:FIRST-LAST. Without a protocol it is TCP's, as ipset has it, or in a set of ports any's.
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
