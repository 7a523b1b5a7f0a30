// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// icmpTypes and icmpv6Types name message types (IANA, ICMP and ICMPv6 Parameters), with nftables' names. A name in both
// maps means both types.
var (
	icmpTypes = map[string]uint8{
		"echo-reply": 0, "destination-unreachable": 3, "source-quench": 4, "redirect": 5, "echo-request": 8,
		"router-advertisement": 9, "router-solicitation": 10, "time-exceeded": 11, "parameter-problem": 12,
		"timestamp-request": 13, "timestamp-reply": 14, "info-request": 15, "info-reply": 16,
		"address-mask-request": 17, "address-mask-reply": 18,
	}
	icmpv6Types = map[string]uint8{
		"destination-unreachable": 1, "packet-too-big": 2, "time-exceeded": 3, "parameter-problem": 4,
		"echo-request": 128, "echo-reply": 129, "mld-listener-query": 130, "mld-listener-report": 131,
		"mld-listener-done": 132, "nd-router-solicit": 133, "nd-router-advert": 134, "nd-neighbor-solicit": 135,
		"nd-neighbor-advert": 136, "nd-redirect": 137, "router-renumbering": 138, "ind-neighbor-solicit": 141,
		"ind-neighbor-advert": 142, "mld2-listener-report": 143,
	}
)

const icmpForm = "an ICMP message's name, icmp/TYPE[/CODE] or icmpv6/TYPE[/CODE]"

var icmpSchema = func() *schema {
	names := &schema{complete: func(s *schema) {
		all := maps.Clone(icmpTypes)
		maps.Copy(all, icmpv6Types)
		s.Enum = anyOfKeys(all)
	}}
	return define("icmpMessage", anyOf(names, text("^icmp(v6)?/[a-z0-9-]+(/[0-9]+)?$")).
		titled("ICMP message").
		described("A message by name, or by numbers as `icmp/TYPE[/CODE]` or `icmpv6/TYPE[/CODE]`.").
		withExamples(`"echo-request", "icmp/3/4"`))
}()

// icmp parses one alternative of the key icmp.
func icmp(text string) ([]ICMP, *flaw) {
	family, rest, hasFamily := strings.Cut(text, "/")
	if !hasFamily {
		return icmpNamed(text)
	}
	switch family {
	case "icmp":
		return one(icmpMessage(text, rest, icmpTypes, false))
	case "icmpv6":
		return one(icmpMessage(text, rest, icmpv6Types, true))
	}
	f := want(icmpForm, text)
	if isDigits(family) && isDigits(rest) {
		f.hintf("write icmp/%s or icmpv6/%s: the numbers differ in meaning", text, text)
	} else if near := wording.Nearest(family, []string{"icmp", "icmpv6"}); near != "" {
		f.hintf("did you mean %q?", near+"/"+rest)
	}
	return nil, f
}

func icmpNamed(name string) ([]ICMP, *flaw) {
	var ms []ICMP
	if t, ok := icmpTypes[name]; ok {
		ms = append(ms, ICMP{Type: t, Code: -1})
	}
	if t, ok := icmpv6Types[name]; ok {
		ms = append(ms, ICMP{V6: true, Type: t, Code: -1})
	}
	if ms != nil {
		return ms, nil
	}
	f := want(icmpForm, name)
	known := slices.Concat(sorted(icmpTypes), sorted(icmpv6Types), []string{"icmp/3/4"})
	if isDigits(name) {
		f.hintf("write icmp/%s or icmpv6/%s: the numbers differ in meaning", name, name)
	} else if near := wording.Nearest(name, known); near != "" {
		f.hintf("did you mean %q?", near)
	} else {
		f.hintf("as in echo-request, echo-reply, destination-unreachable, time-exceeded or packet-too-big")
	}
	return nil, f
}

// icmpMessage parses the text rest, TYPE[/CODE]. TYPE is a number or a name from types. The flaw quotes text, the complete word.
func icmpMessage(text, rest string, types map[string]uint8, v6 bool) (ICMP, *flaw) {
	kind, code, hasCode := strings.Cut(rest, "/")
	m := ICMP{V6: v6, Code: -1}
	if t, ok := types[kind]; ok {
		m.Type = t
	} else if t, f := number(kind, 255); f == nil {
		m.Type = uint8(t)
	} else {
		f := want(icmpForm, text).hintf("a type and a code are numbers from 0 to 255")
		if near := wording.Nearest(kind, sorted(types)); near != "" {
			f.hintf("did you mean %q?", near)
		}
		return m, f
	}
	if hasCode {
		c, f := number(code, 255)
		if f != nil {
			return m, want(icmpForm, text).hintf("a type and a code are numbers from 0 to 255")
		}
		m.Code = int(c)
	}
	return m, nil
}

// String returns m in the policy's notation, with numbers.
func (m ICMP) String() string {
	s := "icmp"
	if m.V6 {
		s = "icmpv6"
	}
	s += fmt.Sprintf("/%d", m.Type)
	if m.Code >= 0 {
		s += fmt.Sprintf("/%d", m.Code)
	}
	return s
}

// MessageWords returns the alternatives of the key icmp for values of packet.ICMP, by name where the policy has one. A name that both families have
// stands for both messages if the values have both, and otherwise needs the protocol in front.
func MessageWords(values []ranges.Range) (list []string) {
	all := messagesOf(values)
	for _, m := range all {
		name, twin := m.named()
		switch {
		case name == "":
			list = append(list, m.String())
		case twin == nil:
			list = append(list, name)
		case !slices.Contains(all, *twin):
			list = append(list, ProtocolName(m.proto())+"/"+name)
		case !m.V6: // otherwise the word of the message of IPv4 stands for it
			list = append(list, name)
		}
	}
	return list
}

// named returns the name of a message type, or "", and the message of the other family that has the same name, or nil.
func (m ICMP) named() (name string, twin *ICMP) {
	own, other := icmpTypes, icmpv6Types
	if m.V6 {
		own, other = other, own
	}
	for n, t := range own {
		if t == m.Type && m.Code < 0 {
			name = n
		}
	}
	if t, ok := other[name]; ok {
		twin = &ICMP{V6: !m.V6, Type: t, Code: -1}
	}
	return name, twin
}

// proto returns the protocol that carries m.
func (m ICMP) proto() uint8 {
	if m.V6 {
		return protoICMPv6
	}
	return protoICMP
}
