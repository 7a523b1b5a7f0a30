package importer

import (
	"fmt"
	"strings"
	"time"
)

// ipsetDims are the parts of the entries of the set types that the policy has an equal for.
var ipsetDims = map[string][]dim{
	"hash:ip": {dimAddr}, "hash:net": {dimAddr}, "bitmap:ip": {dimAddr}, "bitmap:port": {dimPort},
	"hash:ip,port": {dimAddr, dimPort}, "hash:net,port": {dimAddr, dimPort}, "list:set": {dimAddr},
}

// readIpset reads the output of ipset save into rs.
func readIpset(rs *ruleset, rep *report, src Source) error {
	byName := map[string]*set{}
	var made []*set
	number := 0
	for line := range strings.SplitSeq(string(src.Data), "\n") {
		number++
		at := place{file: src.Name, line: number, text: strings.TrimSpace(line)}
		words := split(at.text)
		switch {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		case words[0] == "create" && len(words) >= 3:
			s := createSet(at, words[1], words[2], words[3:])
			byName[s.name] = s
			made = append(made, s)
		case words[0] == "add" && len(words) >= 3:
			s := byName[words[1]]
			if s == nil {
				return &InputError{at.file, at.line, fmt.Sprintf("entry of set %q, which is not created before", words[1]),
					"save the sets again: the file lacks its beginning"}
			}
			s.add(rep, at, words[2], words[3:], byName)
		default:
			return &InputError{at.file, at.line, fmt.Sprintf("%q is neither create nor add", shorten(at.text)),
				"this is not what ipset save prints"}
		}
	}
	for _, s := range made {
		s.finish()
	}
	rs.sets = append(rs.sets, made...)
	return nil
}

// createSet reads `create NAME TYPE family inet maxelem N timeout N …`.
func createSet(at place, name, kind string, words []string) *set {
	s := &set{name: name, at: at, family: ipv4}
	var known bool
	if s.dims, known = ipsetDims[kind]; !known {
		s.problem = "of type " + kind
	}
	if kind == "list:set" {
		s.family, s.lists = 0, []*set{}
	}
	if kind == "bitmap:port" {
		s.family = ipv4 | ipv6
	}
	for i := 0; i+1 < len(words); i++ {
		switch n, _ := number(words[i+1], 1<<31-1); words[i] {
		case "family":
			if words[i+1] == "inet6" {
				s.family = ipv6
			}
		case "timeout":
			s.dynamic, s.timeout = true, time.Duration(n)*time.Second
		case "maxelem":
			s.max = int(n)
		}
	}
	return s
}

// add reads `add NAME ENTRY timeout N nomatch comment "…"`.
func (s *set) add(rep *report, at place, text string, words []string, byName map[string]*set) {
	if s.problem != "" {
		return
	}
	if s.lists != nil {
		s.addList(text, byName)
		return
	}
	e, ok := s.entry(text)
	if !ok {
		rep.lose(at, "not an entry that has an equal; the set is imported without it")
		return
	}
	for i, w := range words {
		switch {
		case w == "nomatch":
			e.except = true
		case w == "comment" && i+1 < len(words):
			e.comment = words[i+1]
		}
	}
	if e.except && !s.isAddrs() {
		s.problem = "with exceptions of addresses and ports"
		return
	}
	s.entries = append(s.entries, e)
}

// addList adds a set to a list of sets.
func (s *set) addList(name string, byName map[string]*set) {
	l := byName[name]
	switch {
	case l == nil:
		s.problem = fmt.Sprintf("whose part %s is not in the file", name)
	case l.problem != "" || !l.isAddrs():
		s.problem = fmt.Sprintf("whose part %s has more than addresses in it", name)
	default:
		s.lists = append(s.lists, l)
		s.family |= l.family
	}
}

// entry reads ADDRESS, PORT, or ADDRESS,[PROTO:]PORT.
func (s *set) entry(text string) (e entry, ok bool) {
	addr, port, _ := strings.Cut(text, ",")
	for _, d := range s.dims {
		if d == dimAddr {
			if e.addr, ok = parseRange(addr); !ok {
				return e, false
			}
			continue
		}
		if len(s.dims) == 1 {
			port = addr
		}
		if e.ports, ok = ipsetPorts(port, len(s.dims) == 1); !ok {
			return e, false
		}
	}
	return e, true
}

// ipsetPorts reads PROTO:FIRST-LAST. Without a protocol it is TCP's, as ipset has it, or in a set of ports any's.
func ipsetPorts(text string, any bool) (values, bool) {
	proto, ports, named := strings.Cut(text, ":")
	if !named {
		proto, ports = "tcp", text
	}
	s, ok := portSpan(ports, "-")
	if !ok {
		return nil, false
	}
	if any {
		return portsIn(values{s}, protoTCP, protoUDP)
	}
	n, ok := protoNumbers[proto]
	if !ok || n != protoTCP && n != protoUDP {
		return nil, false
	}
	return portsIn(values{s}, n)
}
