// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/policy/yamltree"
)

// defaultGuard returns the parameters of `guard: dns`. The average of one client is far below 20 queries per second, and a web page with many hosts
// causes 40 at once. A /24 has more clients, but not all of them are busy. A verified client can be a resolver with many clients. Only programs query
// 100 nonexistent names per second in one zone: DNS blocklists of mail servers, and floods. A resolver has some hundred slots for queries that wait
// for a server which does not answer (unbound: 1,024 per thread, for seconds each).
func defaultGuard(at Pos) *Guard {
	over := func(n uint64, burst uint64) Over { return Over{Pos: at, Rate: n, Per: time.Second, Burst: burst} }
	by := func(v4, v6 int, o Over) Over { o.From = &PrefixLen{v4, v6}; return o }
	g := new(defaults(at, guardKeys))
	g.Pos = at
	g.Limits = []Over{by(defaultV4, defaultV6, over(20, 40)), by(24, 56, over(50, 100))}
	g.Verified = []Over{by(defaultV4, defaultV6, over(1000, 2000))}
	g.Responses = &Over{Pos: at, Rate: 20_000_000, Per: time.Second, Bits: true, Burst: 20_000_000, To: &PrefixLen{24, 56}}
	return g
}

// guardWord parses the value of guard if it is only the kind.
func guardWord(text string) (bool, *flaw) {
	ok, f := guardWords.parse(text)
	if on, isSwitch := switches[text]; isSwitch && on {
		f.hintf("write guard: dns")
	} else if isSwitch {
		f.hintf("leave guard out")
	}
	return ok, f
}

var guardWords = words[bool]{{"dns", true}}

var guardSchema = define("guard", anyOf(guardWords.schema(), object(guardKeys)).titled("`dns`, or `{type, …}`"))

var (
	totalRate = form[*Over]{define("totalRate", anyOf(offSchema, rateSchema, limitSchema).titled("rate, limit or `off`")), place.totalRate}

	limitsOrOff = form[[]Over]{anyOf(offSchema, ratesSchema), place.limitsOrOff}
)

// guardKeys are the keys of guard. The default of types has the DNS types whose responses are many times as long as the query, and that no stub
// resolver queries repeatedly. Many servers answer RRSIG with all signatures of a name, like ANY (RFC 8482, 3). DNSKEY has the longest records of a
// signed zone: keys and signatures. TXT can be of any length in an attacker's own zone. A client that needs these types repeats its query over TCP.
// NSEC is not in the list: it is a short record with one signature.
var guardKeys = []key[Guard]{
	{name: "type", value: custom(func(p place, _ *Guard, v *node) { scalarOf(p, "type", v, guardWords.parse) }, guardWords.schema()),
		doc: "The kind of guard.", examples: `"dns"`, must: "write type: dns, the one guard that there is"},
	{name: "limit", value: into(limitsOrOff, func(to *Guard) *[]Over { return &to.Limits }),
		doc: "The rate of queries of unverified clients. Above it every second query gets a truncated answer, and the others are dropped. " +
			"When left out: 20/s per from, and 50/s per from/24/56.", examples: `{"rate": "100/s", "per": "from"}`},
	{name: "total", value: into(totalRate, func(to *Guard) **Over { return &to.Total }),
		doc: "The rate of queries of all unverified clients together.", usual: `"50000/s"`, examples: `"200000/s"`},
	{name: "verified", value: into(limitsOrOff, func(to *Guard) *[]Over { return &to.Verified }),
		doc:      "The rate of queries of verified clients. Queries above it are dropped. When left out: 1000/s per from.",
		examples: `{"rate": "5000/s", "per": "from"}`},
	{name: "types", value: custom(place.guardTypes, anyOf(offSchema, dnsTypeSchema, &schema{Type: types{"array"}, Items: dnsTypeSchema})),
		doc: "Types that only verified clients are answered over UDP.", usual: `["ANY", "RRSIG", "DNSKEY", "TXT"]`, examples: `["ANY"]`},
	{name: "replies", value: into(totalRate, func(to *Guard) **Over { return &to.Replies }),
		doc:   "The rate of truncated answers to queries for `types`, and for names below flooded zones. Queries above it are dropped.",
		usual: `"100000/s"`, examples: `"20000/s"`},
	{name: "names", value: custom(place.zoneNames, totalRate.schema),
		doc: "The rate of responses of one zone that say a name does not exist, or that fail. Above it, unverified clients get truncated " +
			"answers for names below that zone which the resolver has not answered. Off without a port of TCP.", usual: `"100/s"`,
		examples: `"1000/s"`},
	{name: "responses", value: custom(place.responses, anyOf(offSchema, limitSchema)),
		doc:      "The rate of the resolver's responses by destination, in bits. Responses above it are dropped. When left out: 20mbit/s per to/24/56.",
		examples: `"off"`},
	{name: "verify", value: custom(place.verify, anyOf(offSchema, durationSchema)),
		doc: "How long a client that was answered over TCP stays verified.", usual: `"1h"`, examples: `"10m"`},
	{name: "secret", value: into(word(filePath.schema, secretPath), func(to *Guard) *string { return &to.Secret }),
		doc: "A file with the resolver's DNS cookie secrets, the present one and the one before. Others than its owner and group must not be " +
			"able to read it, and only its owner to write it. When left out: cookies are not looked at.", examples: `"cookie.secret"`},
	{name: "observe", value: into(yesOrNo, func(to *Guard) *bool { return &to.Observe }),
		doc: "Count what the guard would do, and do nothing.", usual: `false`, examples: `true`},
}

// guard parses the key guard.
func (p place) guard(to *Service, v *node) {
	to.Guard = defaultGuard(v.Pos)
	switch v.Kind {
	case yamltree.Word:
		scalarOf(p, "guard", v, guardWord)
		return
	case yamltree.List:
		p.errorf(v.Pos, "guard must be dns or a mapping, got a list").Hint = "write guard: dns"
		return
	}
	readKeys(p.in("guard"), "it", v, guardKeys, to.Guard)
}

func secretPath(text string) (string, *flaw) {
	file, f := path(text)
	if f != nil {
		f.hintf("name the file from which the resolver has its secrets")
	}
	return file, f
}

// isSwitch reports whether v is a word that switches something on or off.
func isSwitch(v *node) bool {
	_, is := switches[v.Text]
	return v.Kind == yamltree.Word && is
}

// isOff reports whether v switches a part of a guard off.
func isOff(v *node) bool {
	return isSwitch(v) && !switches[v.Text]
}

func (p place) limitsOrOff(key string, v *node) []Over {
	if isOff(v) {
		return nil
	}
	return p.overs(key, v)
}

// totalRate parses a limit for all sources together: a rate, or a mapping with a burst.
func (p place) totalRate(key string, v *node) *Over {
	if isOff(v) {
		return nil
	}
	return p.rateForAll(key, v, rateOrOff)
}

// rateForAll parses a limit for all sources together. If the value is a single word, read parses it as a rate.
func (p place) rateForAll(key string, v *node, read func(string) (rate, *flaw)) *Over {
	if v.Kind == yamltree.List {
		p.errorf(v.Pos, "%s must be a rate or a mapping, got a list", key).Hint = "write " + key + ": 1000/s"
		return nil
	}
	if v.Kind == yamltree.Word {
		r := scalarOf(p, key, v, read)
		o := Over{Pos: v.Pos, Rate: r.n, Per: r.per, Bits: r.bits}
		if r.per != 0 {
			o.Burst = o.usualBurst().n
		}
		return &o
	}
	o := p.over(key, v)
	if per := v.Get("per"); per != nil {
		p.errorf(per.Pos, "%s is one rate for %s, without per", key, cmp.Or(map[string]string{"names": "each zone"}[key], "all")).Hint =
			"limits by prefix stand under limit"
	}
	return &o
}

func rateOrOff(text string) (rate, *flaw) {
	r, f := readRate(text)
	if f != nil && strings.HasPrefix(f.hint, "begin with") {
		f.hintf("write off to switch it off")
	}
	return r, f
}

// zoneNames parses the limit above which a zone counts as flooded.
func (p place) zoneNames(to *Guard, v *node) {
	before := len(p.r.errs)
	to.Names = p.totalRate("names", v)
	if to.Names != nil && len(p.r.errs) == before && to.Names.Bits {
		p.errorf(v.Pos, "names limits responses, got a rate in bits").Hint = "write names: 100/s"
	}
}

// responses parses the limit of outgoing responses.
func (p place) responses(to *Guard, v *node) {
	to.Responses = nil
	if isOff(v) {
		return
	}
	before := len(p.r.errs)
	o := p.over("responses", v)
	to.Responses = &o
	switch {
	case len(p.r.errs) > before || !v.Whole():
	case !o.Bits:
		p.errorf(v.Get("rate").Pos, "responses are limited in bits, got %s", v.Get("rate")).Hint =
			"what hurts who gets them is their length, as in 20mbit/s"
	case o.To == nil || o.From != nil:
		p.errorf(v.Pos, "responses are limited by destination only").Hint = "write per: to, or per: to/24/56"
	}
}

func (p place) guardTypes(to *Guard, v *node) {
	to.Types = nil
	if isOff(v) || v.Kind == yamltree.List && len(v.Items) == 0 {
		return
	}
	for _, r := range values(p, "types", v, dnsType) {
		for t := r.First; t <= r.Last; t++ {
			to.Types = append(to.Types, t)
		}
	}
	slices.Sort(to.Types)
	to.Types = slices.Compact(to.Types)
}

func (p place) verify(to *Guard, v *node) {
	to.Verify = 0
	if isOff(v) {
		return
	}
	to.Verify = scalarOf(p, "verify", v, func(text string) (time.Duration, *flaw) {
		d, f := duration(text)
		f.hintIfZero("write off where TCP is to verify nobody")
		return d, f
	})
}

// guardedPorts reports ports of the service n that its guard cannot protect. Without a TCP port, no client can be verified over TCP.
func (p place) guardedPorts(s *Service, n *node) {
	if s.Guard == nil || s.Port == nil {
		return
	}
	v := n.Get("guard")
	if len(ofUDP(s.Port)) == 0 {
		p.errorf(v.Pos, "guard needs a port of UDP, which queries come to").Hint =
			fmt.Sprintf("write port: [udp/%d, tcp/%[1]d]", s.Port[0].First)
	}
	if hasTCP(s.Port) {
		return
	}
	s.Guard.Verify, s.Guard.Names = 0, nil
	if names := v.Get("names"); names != nil && !isOff(names) {
		p.errorf(names.Pos, "names needs a port of TCP: clients whose queries are truncated come back over it").Hint =
			fmt.Sprintf("write port: [udp/%d, tcp/%[1]d], or remove names", s.Port[0].First)
	}
	if verify := v.Get("verify"); verify != nil && !isOff(verify) {
		p.errorf(verify.Pos, "verify needs a port of TCP: who is answered over it is verified").Hint =
			fmt.Sprintf("write port: [udp/%d, tcp/%[1]d], or remove verify", s.Port[0].First)
	}
}

// guardedOnce reports that the service n shares a UDP port with an earlier service that has a guard, too. The guard for a response is selected by the
// response's port alone, so a port can have only one.
func (p place) guardedOnce(earlier []Service, s Service, n *node) {
	for _, e := range earlier {
		if s.Guard == nil || e.Guard == nil {
			continue
		}
		if port, shared := sharedPort(ofUDP(s.Port), ofUDP(e.Port)); shared {
			p.errorf(n.Get("guard").Pos, "guard is the second for port %s, which has one in line %d", port, e.Pos.Line).Hint =
				"give one guard to one service of the port; rules with from before it can treat some clients otherwise"
			return
		}
	}
}

// ofUDP returns the ports for UDP, or for both UDP and TCP.
func ofUDP(ports []Port) []Port {
	return slices.DeleteFunc(slices.Clone(ports), func(p Port) bool { return p.Proto == protoTCP })
}

// hasTCP reports whether any of ports is for TCP.
func hasTCP(ports []Port) bool {
	return slices.ContainsFunc(ports, func(p Port) bool { return p.Proto != protoUDP })
}
