// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/policy"
)

// slip is the number of queries above a limit for each query that is answered with TC. It is 2, as in BIND, NSD and Knot. So a real client's second
// attempt gets an answer, but only a part of a flood is answered.
const slip = 2

// guard adds the rules that protect a resolver, before the rule that passes its traffic:
//   - packets that are no queries are dropped;
//   - verified clients have a limit of their own;
//   - queries of unverified clients are answered with TC, so that the client repeats them over TCP: if their answers amplify, if they ask for a name
//     below a flooded zone that the resolver has not answered, or if they come too often.
//
// Truncated answers of the first two kinds share one rate. Queries below flooded zones are decided before the limits of passing queries, and so do
// not use them up.
func (l *lowering) guard(s policy.Service) error {
	g := s.Guard
	if g == nil {
		return nil
	}
	unverified, verified := isOne(packet.Verified, 0), isOne(packet.Verified, 1)
	types := ir.Match{Field: packet.DNS, Values: ranges.Normalize(each(g.Types, ranges.Of))}
	type guardRule struct {
		name    string
		verdict ir.Verdict
		slip    uint32
		over    []int // limits
		match   []ir.Match
		names   bool // Rule.Unanswered
	}
	over := func(name string, over ...policy.Over) []int { return l.limits(s.Name+":"+name, over) }
	rules := []guardRule{
		{name: "malformed", verdict: ir.Drop, match: isOne(packet.DNS, packet.DNSMalformed)},
		{name: "response", verdict: ir.Drop, match: isOne(packet.DNS, packet.DNSResponse)},
		{name: "other", verdict: ir.Drop, match: isOne(packet.DNS, packet.DNSOther)},
	}
	if g.Verified != nil {
		rules = append(rules, guardRule{name: "verified", verdict: ir.Drop, over: over("verified", g.Verified...), match: verified})
	}
	var most []int
	if g.Types != nil || g.Names != nil {
		most = over("replies", replies(g)...)
	}
	if g.Types != nil {
		if most != nil {
			rules = append(rules, guardRule{name: "replies", verdict: ir.Drop, over: most, match: append(unverified, types)})
		}
		rules = append(rules, guardRule{name: "types", verdict: ir.Truncate, match: append(unverified, types)})
	}
	if g.Names != nil {
		if most != nil {
			rules = append(rules, guardRule{name: "names-replies", verdict: ir.Drop, over: most, match: unverified, names: true})
		}
		rules = append(rules, guardRule{name: "names", verdict: ir.Truncate, match: unverified, names: true})
	}
	if g.Total != nil && g.Replies != nil {
		rules = append(rules, guardRule{name: "flood", verdict: ir.Drop, over: over("flood", together(*g.Total, *g.Replies)), match: unverified})
	}
	if g.Limits != nil {
		rules = append(rules, guardRule{name: "limit", verdict: ir.Truncate, slip: slip, over: over("limit", g.Limits...), match: unverified})
	}
	if g.Total != nil {
		rules = append(rules, guardRule{name: "total", verdict: ir.Truncate, slip: slip, over: over("total", *g.Total), match: unverified})
	}
	for _, r := range rules {
		rule := ir.Rule{
			Name: s.Name + ":" + r.name, Kind: ir.RuleKindService, Line: s.Pos.Line, Col: s.Pos.Col,
			Verdict: r.verdict, Slip: r.slip, Observe: g.Observe, Over: r.over, Unanswered: r.names,
		}
		l.match(&rule, policy.Match{Port: s.Port, From: s.From}, false)
		l.dnsPort(&rule)
		for _, m := range r.match {
			rule.Match = match.Also(rule.Match, m)
		}
		if r.verdict == ir.Truncate {
			rule.Match = match.Also(rule.Match, ir.Match{Field: packet.DNS, Values: query})
		}
		l.program.Rules = append(l.program.Rules, rule)
	}
	return l.guardBeside(s)
}

// replies returns the limits of truncated responses to queries that amplify. One limit is for all clients together. There is another one for each
// prefix length by which queries are limited. So the victim of a forged address gets less traffic than the attacker sends.
func replies(g *policy.Guard) (over []policy.Over) {
	const held = 1 << 17 // prefixes; the limit for all clients passes no more of them
	if g.Replies != nil {
		over = append(over, *g.Replies)
	}
	for _, o := range g.Limits {
		if o.Max == 0 {
			o.Max = held
		}
		over = append(over, o)
	}
	return over
}

// together returns a limit for all clients. Its rate and burst are the sums of those of a and b. Queries above this limit get no answer at all, not
// even with TC.
func together(a, b policy.Over) policy.Over {
	perSecond := func(n uint64, o policy.Over) uint64 {
		return uint64(float64(n) * float64(time.Second) / float64(o.Per))
	}
	a.Rate, a.Per = max(perSecond(a.Rate, a)+perSecond(b.Rate, b), 1), time.Second
	a.Burst += b.Burst
	return a
}

// guardBeside adds the parts of a guard that are not rules.
func (l *lowering) guardBeside(s policy.Service) (err error) {
	g := ir.Guard{
		Service: s.Name, Line: s.Pos.Line, Col: s.Pos.Col, Ports: fieldMatches(policy.Match{Port: s.Port})[0].Values,
		Verify: s.Guard.Verify, Out: -1, Observe: s.Guard.Observe,
	}
	if s.Guard.Responses != nil {
		g.Out = l.limits(s.Name+":responses", []policy.Over{*s.Guard.Responses})[0]
	}
	if names := s.Guard.Names; names != nil {
		g.Names = l.zoneNames(s.Name, *names)
	}
	if s.Guard.Secret != "" {
		g.Secrets, err = readSecrets(beside(l.file, s.Guard.Secret))
	}
	l.program.Guards = append(l.program.Guards, g)
	return err
}

// heldZones is the capacity of the limits of flooded zones, in zones and in domains. At 50,000 queries per second, no more zones or domains can
// exceed a limit at once.
const heldZones = 1 << 14

// zoneNames adds the limits that decide whether a zone is flooded. A zone is no longer flooded below half of the rate at which it becomes flooded. At
// most 50 names per second are learned for one domain. The burst allows the popular names of a large domain to be learned at once. A domain in which
// all names exist fills a third of the table in an hour.
func (l *lowering) zoneNames(service string, flooded policy.Over) *ir.Names {
	flooded.From, flooded.Max = &policy.PrefixLen{V4: 32, V6: 128}, heldZones
	goOn, fresh := flooded, flooded
	goOn.Rate, goOn.Burst = max(flooded.Rate/2, 1), max(flooded.Burst/2, 1)
	fresh.Rate, fresh.Per, fresh.Burst = 50, time.Second, 1<<14
	numbers := l.limits(service+":names", []policy.Over{flooded, goOn, fresh})
	return &ir.Names{Flooded: numbers[0], GoOn: numbers[1], New: numbers[2]}
}

func isOne(f packet.Field, v uint32) []ir.Match { return []ir.Match{{Field: f, Values: ranges.Of(v)}} }

// secretRule is the rule for the owner and mode of a file of DNS cookie secrets. The file may be the resolver's own, so its owner and group may be
// those of the resolver.
var secretRule = safefile.Rule{Closed: safefile.ToAll &^ 0o050}

// readSecrets reads DNS cookie secrets from a file in the format of resolvers. Each line has 32 hexadecimal digits. The current secret comes first.
// The previous secret may follow; its cookies are still valid (RFC 9018, 5). Anyone who knows a secret can make cookies for forged addresses, so only
// the owner and the group of the file may read it.
func readSecrets(path string) (secrets [][16]byte, err error) {
	text, err := secretRule.Read(path)
	if err != nil {
		return nil, err
	}
	for i, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		secret, err := hex.AppendDecode(nil, bytes.TrimSpace(line))
		if err != nil || len(secret) != 16 {
			return nil, fmt.Errorf("%s:%d: a cookie secret is 32 hexadecimal digits", path, i+1)
		}
		secrets = append(secrets, [16]byte(secret))
	}
	if len(secrets) > image.MaxSecrets {
		return nil, fmt.Errorf("%s: more than two cookie secrets: keep the present one and the one before", path)
	}
	return secrets, nil
}
