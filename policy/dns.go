// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// dnsWords are the kinds of messages, as values of packet.DNS.
var dnsWords = words[[]Range]{
	{"query", dnsQueries}, {"response", []Range{{packet.DNSResponse, packet.DNSResponse}}},
	{"malformed", []Range{{packet.DNSMalformed, packet.DNSMalformed}}}, {"other", []Range{{packet.DNSOther, packet.DNSOther}}},
}

var dnsQueries = []Range{{0, maxType}}

var dnsKeys = []key[DNS]{
	{name: "type", value: into(list(dnsTypeSchema, dnsType), func(to *DNS) *[]Range { return &to.Types }),
		doc: "The type that a query asks for.", examples: `["ANY", "TXT"]`},
	{name: "name", value: custom(place.dnsNames, listOf(dnsNameSchema)),
		doc: "The name that a query asks for. A name also stands for all names below it.", examples: `"evil.example"`},
}

var dnsSchema = define("dns", anyOf(append(listOf(dnsMessageSchema).AnyOf, dnsQuerySchema)...).titled("DNS messages, or `{type, name}`"))

var dnsMessageSchema = define("dnsMessage", dnsWords.schema().titled("`query`, `response`, `malformed` or `other`").described(
	"`query` is a well-formed query, `response` has the response bit, `malformed` is no DNS message, `other` is none of these."))

var dnsQuerySchema = func() *schema {
	s := object(dnsKeys).described("Queries for a type and a name.")
	s.MinProperties = 1
	return s
}()

// dns parses the key dns: kinds of messages, or the types and names of queries.
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
	kinds, f := dnsWords.parse(text)
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

// notDNS parses dns under not. There, type and name together are not allowed. Their negation would hold if either fails, but a rule negates each test
// separately.
func (p place) notDNS(to *Match, v *node) {
	p.dns(to, v)
	if to.DNS.Types != nil && to.DNS.Names != nil {
		p.errorf(v.Pos, "dns cannot be negated with both type and name").Hint =
			"make two rules, one with not: {dns: {type: …}} and one with not: {dns: {name: …}}"
	}
}

// truncates adds the implied match for queries to a rule with then: truncate. It reports a rule whose packets cannot get a truncated response.
func (p place) truncates(r *Rule, n *node) {
	if r.Then != Truncate {
		if r.Slip != 0 {
			p.errorf(n.Get("slip").Pos, "slip has a meaning with then: truncate only").Hint = "remove it, or write then: truncate"
		}
		return
	}
	if r.Match.DNS == nil {
		r.Match.DNS = &DNS{Types: dnsQueries}
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
