package importer

import (
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/packet"
)

// ruleReader is a rule of iptables as far as it was read.
type ruleReader struct {
	file   *iptablesFile
	rule   rule
	protos []uint32 // of -p, when it names them
}

// read reads the options of a rule, each of which changes the rule or makes it one without equal.
func (r *ruleReader) read(words []string) {
	tokens := tokenize(words)
	for _, t := range tokens { // what others are read by
		if t.name == "-p" && t.module == "" && t.unread == "" {
			r.protocol(t.not, t.args)
		}
	}
	for _, t := range tokens {
		r.token(t, tokens)
	}
	r.together(tokens)
}

// token reads one option that means something by itself.
func (r *ruleReader) token(t token, all []token) {
	read, known := options[t.module+t.name]
	switch {
	case t.unread != "":
		r.unknown(t.unread)
	case t.module == "" && t.name == "-p":
	case t.module == "":
		r.core(t, all)
	case slices.Contains(grouped, t.module):
	case known:
		r.protosOf(t.module, func() { read(r, t.not, t.args) })
	case targetOptions[t.module] != nil && t.module == targetOf(all):
		r.rule.options = append(r.rule.options, t)
		if t.not {
			r.unknown("! " + t.name)
		}
	case t.module == "multiport" || matchOptions[t.module] != nil && alone[t.module]:
		r.unknown("option " + t.name)
	default:
		r.unknown("-m " + t.module)
	}
}

// targetOf is the target of a rule.
func targetOf(tokens []token) string {
	for _, t := range tokens {
		if t.module == "" && (t.name == "-j" || t.name == "-g") && len(t.args) > 0 {
			return t.args[0]
		}
	}
	return ""
}

// protosOf reads an option of an extension: those of a protocol's are about that one.
func (r *ruleReader) protosOf(module string, read func()) {
	before := r.protos
	if n, ok := protoNumbers[module]; ok {
		r.protos = []uint32{n}
	}
	read()
	r.protos = before
}

// core reads an option of iptables itself.
func (r *ruleReader) core(t token, all []token) {
	switch t.name {
	case "-s":
		r.address(t.not, t.args[0], cond.from)
	case "-d":
		r.address(t.not, t.args[0], cond.to)
	case "-i":
		r.inDevice(t.not, t.args)
	case "-o":
		r.unknown("-o, the device a packet leaves by")
	case "-f":
		r.fragment(t.not, nil)
	case "-j":
		r.jump(actJump, t.args[0])
	case "-g":
		r.jump(actGoto, t.args[0])
	case "-m":
		r.module(t.args[0], all)
	case "-4", "-6":
		if (t.name == "-4") != (r.file.family == ipv4) { // iptables-restore passes over it
			r.each(func(c cond) cond { return c.with(packet.Proto, values{}) })
		}
	}
	if t.not && !slices.Contains([]string{"-s", "-d", "-i", "-o", "-f"}, t.name) {
		r.unknown("! " + t.name)
	}
}

// alone are the extensions that mean nothing without options, or what is read of the rule already.
var alone = map[string]bool{
	"comment": true, "tcp": true, "udp": true, "icmp": true, "icmp6": true, "icmpv6": true, "ipv6-icmp": true,
	"multiport": true, "iprange": true, "addrtype": true, "conntrack": true, "state": true, "set": true, "length": true,
	"ttl": true, "hl": true, "dscp": true, "tos": true, "mark": true, "connmark": true,
}

// module reads -m: an extension that is not known, or that matches by itself, has no equal.
func (r *ruleReader) module(name string, all []token) {
	has := slices.ContainsFunc(all, func(t token) bool { return t.module == name })
	if n, ok := protoNumbers[name]; ok && (name == "tcp" || name == "udp" || strings.HasPrefix(name, "icmp") || name == "ipv6-icmp") {
		if len(r.protos) != 1 || protoExtension(r.protos[0]) != protoExtension(n) { // iptables loads it for its protocol only
			r.each(func(c cond) cond { return c.with(packet.Proto, only(n)) })
		}
	}
	if !alone[name] && !has {
		r.unknown("-m " + name)
	}
}

// grouped are the extensions whose options mean something together only.
var grouped = []string{"conntrack", "limit", "hashlimit", "recent"}

// together reads the extensions of grouped.
func (r *ruleReader) together(all []token) {
	for _, name := range grouped {
		var of []token
		times := 0
		for _, t := range all {
			if t.module == name && t.unread == "" {
				of = append(of, t)
			}
			if t.module == "" && t.name == "-m" && t.unread == "" && t.args[0] == name {
				times++
			}
		}
		switch {
		case len(of) == 0:
		case times > 1 && name != "conntrack":
			r.unknown("-m " + name + " twice")
		case name == "conntrack":
			r.conntrack(of)
		case name == "recent":
			r.rule.recent = r.recent(of)
		default:
			r.limit(name, of, all)
		}
	}
}

// each changes all alternatives.
func (r *ruleReader) each(change func(cond) cond) {
	for i := range r.rule.alts {
		r.rule.alts[i] = change(r.rule.alts[i])
	}
}

func (r *ruleReader) unknown(what string) {
	r.each(func(c cond) cond { return c.withUnknown(what) })
}
