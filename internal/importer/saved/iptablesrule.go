// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// iptablesRuleReader is the state of parsing a rule of iptables.
type iptablesRuleReader struct {
	file   *saveFile
	rule   Rule
	protos []uint32 // the protocols of -p, if it names any
}

// read parses the options of a rule. Each option changes the rule, or makes it a rule without equivalent.
func (r *iptablesRuleReader) read(words []string) {
	tokens := tokenize(words)
	for _, t := range tokens { // other options can be parsed only when the protocol is known
		if t.Name == "-p" && t.Module == "" && t.Unread == "" {
			r.protocol(t.Not, t.Args)
		}
	}
	for _, t := range tokens {
		r.token(t, tokens)
	}
	r.together(tokens)
	for i := range r.rule.Alts {
		r.rule.Alts[i] = r.rule.Alts[i].OfSYN().OfBytes(true)
	}
}

// token parses one option that has a meaning without other options.
func (r *iptablesRuleReader) token(t Token, all []Token) {
	read, known := options[t.Module+t.Name]
	switch {
	case t.Unread != "":
		r.unknown(t.Unread)
	case t.Module == "" && t.Name == "-p":
	case t.Module == "":
		r.core(t, all)
	case slices.Contains(grouped, t.Module):
	case known:
		r.protosOf(t.Module, func() { read(r, t.Not, t.Args) })
	case targetOptions[t.Module] != nil && t.Module == targetOf(all):
		r.rule.Options = append(r.rule.Options, t)
		if t.Not {
			r.unknown("! " + t.Name)
		}
	case t.Module == "multiport" || matchOptions[t.Module] != nil && alone[t.Module]:
		r.unknown("option " + t.Name)
	case t.Module == "geoip" && len(t.Args) == 1:
		r.countries(t)
	default:
		r.unknown("-m " + t.Module)
	}
}

// targetOf returns the target of a rule.
func targetOf(tokens []Token) string {
	for _, t := range tokens {
		if t.Module == "" && (t.Name == "-j" || t.Name == "-g") && len(t.Args) > 0 {
			return t.Args[0]
		}
	}
	return ""
}

// protosOf parses an option of an extension. The options of a protocol's extension are only for that protocol, so it sets the protocol during read.
func (r *iptablesRuleReader) protosOf(module string, read func()) {
	before := r.protos
	if n, ok := ProtoNumbers[module]; ok {
		r.protos = []uint32{n}
	}
	read()
	r.protos = before
}

// core parses an option of iptables itself.
func (r *iptablesRuleReader) core(t Token, all []Token) {
	switch t.Name {
	case "-s":
		r.address(t.Not, t.Args[0], Cond.From)
	case "-d":
		r.address(t.Not, t.Args[0], Cond.To)
	case "-i":
		r.inDevice(t.Not, t.Args)
	case "-o":
		r.outDevice(t.Not, t.Args[0])
	case "-f":
		r.ask(packet.Fragment, Only(packet.FragmentLater), t.Not)
	case "-j":
		r.jump(ActJump, t.Args[0])
	case "-g":
		r.jump(ActGoto, t.Args[0])
	case "-m":
		r.module(t.Args[0], all)
	case "-4", "-6":
		if (t.Name == "-4") != (r.file.family == IPv4) { // iptables-restore ignores such a rule
			r.each(func(c Cond) Cond { return c.With(packet.Proto, Values{}) })
		}
	}
	if t.Not && !slices.Contains([]string{"-s", "-d", "-i", "-o", "-f"}, t.Name) {
		r.unknown("! " + t.Name)
	}
}

// alone are the extensions that have no meaning without options, or whose meaning was already parsed.
var alone = map[string]bool{
	"comment": true, "tcp": true, "udp": true, "icmp": true, "icmp6": true, "icmpv6": true, "ipv6-icmp": true,
	"multiport": true, "iprange": true, "addrtype": true, "conntrack": true, "state": true, "set": true, "length": true,
	"ttl": true, "hl": true, "tcpmss": true, "dscp": true, "tos": true, "mark": true, "connmark": true,
}

// module parses -m. An unknown extension has no equivalent, and neither has an extension that matches without options.
func (r *iptablesRuleReader) module(name string, all []Token) {
	has := slices.ContainsFunc(all, func(t Token) bool { return t.Module == name })
	if n, ok := ProtoNumbers[name]; ok && (name == "tcp" || name == "udp" || strings.HasPrefix(name, "icmp") || name == "ipv6-icmp") {
		if len(r.protos) != 1 || protoExtension(r.protos[0]) != protoExtension(n) { // iptables loads the extension only for its protocol
			r.each(func(c Cond) Cond { return c.With(packet.Proto, Only(n)) })
		}
	}
	if !alone[name] && !has {
		r.unknown("-m " + name)
	}
}

// grouped are the extensions whose options have a meaning only together.
var grouped = []string{"conntrack", "limit", "hashlimit", "connlimit", "recent", "string", "u32"}

// together parses the extensions of grouped.
func (r *iptablesRuleReader) together(all []Token) {
	r.bytesOf(all)
	for _, name := range []string{"conntrack", "limit", "hashlimit", "connlimit", "recent"} {
		var of []Token
		times := 0
		for _, t := range all {
			if t.Module == name && t.Unread == "" {
				of = append(of, t)
			}
			if t.Module == "" && t.Name == "-m" && t.Unread == "" && t.Args[0] == name {
				times++
			}
		}
		switch {
		case len(of) == 0:
		case times > 1 && name != "conntrack":
			r.unknown("-m " + name + " twice")
		case name == "conntrack":
			r.conntrack(of)
		case name == "connlimit":
			r.connections(of)
		case name == "recent":
			r.rule.Recent = r.recent(of)
		default:
			r.limit(name, of, all)
		}
	}
}

// each changes all alternatives.
func (r *iptablesRuleReader) each(change func(Cond) Cond) {
	for i := range r.rule.Alts {
		r.rule.Alts[i] = change(r.rule.Alts[i])
	}
}

func (r *iptablesRuleReader) unknown(what string) {
	r.each(func(c Cond) Cond { return c.WithUnknown(what) })
}
