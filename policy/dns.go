package policy

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// dnsWords are the kinds of messages, as values of packet.DNS.
var dnsWords = map[string][]Range{
	"query":     {{0, maxType}},
	"response":  {{packet.DNSResponse, packet.DNSResponse}},
	"other":     {{packet.DNSOther, packet.DNSOther}},
	"malformed": {{packet.DNSMalformed, packet.DNSMalformed}},
}

var dnsKeys = []key[DNS]{
	{"type", func(p place, to *DNS, v *node) { to.Types = values(p, "type", v, dnsType) }},
	{"name", func(p place, to *DNS, v *node) { p.dnsNames(to, v) }},
}

// dns reads the key dns: kinds of messages, or what queries ask for.
func (p place) dns(to *Match, v *node) {
	to.DNS = &DNS{}
	if v.Kind != yamltree.Mapping {
		to.DNS.Types = values(p, "dns", v, dnsKind)
		return
	}
	seen := readKeys(p, "dns", v, dnsKeys, to.DNS)
	if seen != nil && !v.Lacks && len(seen) == 0 {
		p.errorf(v.Pos, "dns has neither type nor name").Hint = "write dns: query for all queries"
	}
}

func dnsKind(text string) ([]Range, *flaw) {
	kinds, f := choices(dnsWords)(text)
	if f == nil {
		return kinds, nil
	}
	upper := strings.ToUpper(text)
	on, isSwitch := switches[text]
	switch {
	case packet.DNSTypes[upper] != 0:
		f.hintf("write dns: {type: %s}", upper)
	case isSwitch && on || strings.HasPrefix(f.hint, "leave the key out"):
		f.hintf("write dns: query")
	case f.hint == "" && strings.Contains(text, ".") && isName(text):
		f.hintf("write dns: {name: %s}", text)
	case strings.HasPrefix(text, "$"):
		f.hintf("write dns: {name: %s}", text)
	}
	return nil, f
}

// notDNS reads dns under not. Types and names together are one thing there, of which a part may hold: a rule asks only for
// things that hold, or do not hold, each by itself.
func (p place) notDNS(to *Match, v *node) {
	p.dns(to, v)
	if to.DNS.Types != nil && to.DNS.Names != nil {
		p.errorf(v.Pos, "dns cannot be negated with both type and name").Hint =
			"make two rules, one with not: {dns: {type: …}} and one with not: {dns: {name: …}}"
	}
}

// truncates makes what a rule for truncated responses implies plain, and reports what cannot be answered so.
func (p place) truncates(r *Rule, n *node) {
	if r.Then != Truncate {
		if r.Slip != 0 {
			p.errorf(n.Get("slip").Pos, "slip has a meaning with then: truncate only").Hint = "remove it, or write then: truncate"
		}
		return
	}
	if r.Match.DNS == nil {
		r.Match.DNS = &DNS{Types: dnsWords["query"]}
		return
	}
	for _, t := range r.Match.DNS.Types {
		if t.First > maxType {
			p.errorf(n.Get("dns").Pos, "then: truncate answers queries, and dns is %s", fmt.Sprint(n.Get("dns"))).Hint =
				"write dns: query, or then: drop"
			return
		}
	}
}
