package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// icmpTypes and icmpv6Types name message types (IANA, ICMP and ICMPv6 Parameters), with nftables' names. A name that is
// in both means both.
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

// icmp reads one alternative of icmp.
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

// icmpMessage reads TYPE[/CODE], the type as a number or by its name in types.
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

// String is the policy's form of m, by numbers.
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

// proto is the protocol that carries m.
func (m ICMP) proto() uint8 {
	if m.V6 {
		return protoICMPv6
	}
	return protoICMP
}
