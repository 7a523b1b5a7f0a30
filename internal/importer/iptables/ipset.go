package iptables

import (
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/importer/saved"
)

// ipsetDims are the parts of the entries of the set types that the policy has an equal for.
var ipsetDims = map[string][]saved.Dim{
	"hash:ip": {saved.DimAddr}, "hash:net": {saved.DimAddr}, "bitmap:ip": {saved.DimAddr}, "bitmap:port": {saved.DimPort},
	"hash:ip,port": {saved.DimAddr, saved.DimPort}, "hash:net,port": {saved.DimAddr, saved.DimPort}, "list:set": {saved.DimAddr},
}

// ReadIpset reads the output of ipset save into rs.
func ReadIpset(rs *saved.Ruleset, rep *saved.Report, src saved.Source) error {
	byName := map[string]*saved.Set{}
	var made []*saved.Set
	number := 0
	for line := range strings.SplitSeq(string(src.Data), "\n") {
		number++
		at := saved.Place{File: src.Name, Line: number, Text: strings.TrimSpace(line)}
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
				return &saved.InputError{File: at.File, Line: at.Line, Msg: fmt.Sprintf("entry of set %q, which is not created before", words[1]),
					Remedy: "save the sets again: the file lacks its beginning"}
			}
			addEntry(s, rep, at, words[2], words[3:], byName)
		default:
			return &saved.InputError{File: at.File, Line: at.Line, Msg: fmt.Sprintf("%q is neither create nor add", saved.Shorten(at.Text)),
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
func createSet(at saved.Place, name, kind string, words []string) *saved.Set {
	s := &saved.Set{Name: name, At: at, Family: saved.IPv4}
	var known bool
	if s.Dims, known = ipsetDims[kind]; !known {
		s.Problem = "of type " + kind + whyNot(kind)
	}
	if kind == "list:set" {
		s.Family, s.Lists = 0, []*saved.Set{}
	}
	if kind == "bitmap:port" {
		s.Family = saved.IPv4 | saved.IPv6
	}
	for i := 0; i+1 < len(words); i++ {
		switch n, _ := saved.Number(words[i+1], 1<<31-1); words[i] {
		case "family":
			if words[i+1] == "inet6" {
				s.Family = saved.IPv6
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
func addEntry(s *saved.Set, rep *saved.Report, at saved.Place, text string, words []string, byName map[string]*saved.Set) {
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
func addList(s *saved.Set, name string, byName map[string]*saved.Set) {
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
func entry(s *saved.Set, text string) (e saved.Entry, ok bool) {
	addr, port, _ := strings.Cut(text, ",")
	for _, d := range s.Dims {
		if d == saved.DimAddr {
			if e.Addr, ok = saved.ParseRange(addr); !ok {
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
func ipsetPorts(text string, any bool) (saved.Values, bool) {
	proto, ports, named := strings.Cut(text, ":")
	if !named {
		proto, ports = "tcp", text
	}
	s, ok := saved.PortSpan(ports, "-")
	if !ok {
		return nil, false
	}
	if any {
		return saved.PortsIn(saved.Values{s}, saved.ProtoTCP, saved.ProtoUDP)
	}
	n, ok := saved.ProtoNumbers[proto]
	if !ok || n != saved.ProtoTCP && n != saved.ProtoUDP {
		return nil, false
	}
	return saved.PortsIn(saved.Values{s}, n)
}
