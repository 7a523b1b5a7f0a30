// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// matchKeys are the keys that a rule and its not share.
var matchKeys = []key[Match]{
	{name: "from", value: into(ends, func(to *Match) *[]Addr { return &to.From }),
		doc: "The source address.", examples: `"$office", ["192.0.2.0/24", "2001:db8::/32"], "local"`},
	{name: "to", value: into(ends, func(to *Match) *[]Addr { return &to.To }),
		doc: "The destination address.", examples: `"192.0.2.1", "local"`},
	{name: "proto", value: into(list(protocolSchema, proto), func(to *Match) *[]uint8 { return &to.Proto }),
		doc: "The protocol. In IPv6 it is the header after the extension headers.", examples: `"udp", ["tcp", "gre"]`},
	{name: "port", value: into(ports, func(to *Match) *[]Port { return &to.Port }),
		doc: "The destination port. It matches no other protocol than TCP and UDP: SCTP, DCCP and UDP-Lite have ports, too, but only " +
			"`proto` matches these.", examples: `"tcp/443", ["udp/53", "tcp/8000-8999"]`},
	{name: "sport", value: into(ports, func(to *Match) *[]Port { return &to.SPort }),
		doc: "The source port.", examples: `["udp/53", "udp/123"]`},
	{name: "family", value: into(list(familySchema, familyWords.parse), func(to *Match) *[]uint32 { return &to.Family }),
		doc: "The address family.", examples: `"ipv6"`},
	{name: "flags", value: custom(place.flagsKey, listOf(flagsSchema)),
		doc: "TCP flags. `syn/fin,syn,rst,ack`: of the flags after the slash exactly those before it are set. Without a slash the named " +
			"flags are set, whatever the others are.",
		examples: `"syn/fin,syn,rst,ack", "none/fin,syn,rst,ack", "ece"`},
	{name: "icmp", value: into(list(icmpSchema, icmp), func(to *Match) *[]ICMP { return &to.ICMP }),
		doc:      "ICMP and ICMPv6 messages. A name that both families have means both.",
		examples: `"echo-request", "icmp/3/4"`},
	{name: "length", value: into(list(lengthSchema, numbers(65535)), func(to *Match) *[]Range { return &to.Length }),
		doc: "The length of the IP packet in bytes, header included.", examples: `"0-63"`},
	{name: "ttl", value: into(list(hopsSchema, numbers(255)), func(to *Match) *[]Range { return &to.TTL }),
		doc: "The TTL, or the hop limit of IPv6.", examples: `"255"`},
	{name: "dscp", value: into(list(codePointSchema, dscp), func(to *Match) *[]Range { return &to.DSCP }),
		doc: "The differentiated services code point.", examples: `"ef"`},
	{name: "mss", value: into(list(segmentSizeSchema, mss), func(to *Match) *[]Range { return &to.MSS }),
		doc: "The maximum segment size that a TCP segment with SYN announces: the first MSS option of 4 bytes (Linux takes the last). " +
			"`none` is a segment with SYN and without this option. Other packets never match. nftables and iptables also find an option " +
			"behind the end of the options or of the packet.", examples: `"0-535", "none"`},
	{name: "fragment", value: into(list(fragmentSchema, fragmentWords.parse), func(to *Match) *[]uint32 { return &to.Fragment }),
		doc:      "`none` is a whole packet, `first` the first fragment, `later` any other, which has no ports. `true` is `first` and `later`.",
		examples: `"later"`},
	{name: "vlan", value: into(list(vlanSchema, vlan), func(to *Match) *[]Range { return &to.VLAN }),
		doc: "The VLAN of the outermost tag. `none` is a frame without a tag, `any` a frame with one.", examples: `100, "none"`},
	{name: "payload", value: custom(place.payload, payloadSchema),
		doc:      "The bytes after the TCP, UDP or ICMP header. All places of `at` must match, and one text of `contains`.",
		examples: `{"contains": "evil.example"}, {"at": {"offset": 0, "bytes": "|ff ff ff ff|T"}}`},
	{name: "dns", value: custom(place.dns, dnsSchema),
		doc:      "A DNS message over UDP, to port 53 unless the rule names ports.",
		examples: `"query", {"type": ["ANY", "TXT"]}, {"name": "evil.example"}`},
	{name: "state", value: into(list(stateSchema, readState), func(to *Match) *[]uint32 { return &to.State }),
		doc:      "The packet's state in connection tracking, which must be on.",
		examples: `["established", "related"]`},
}

// ruleKeys are the keys of a rule. The name has been parsed before the others, because messages begin with it.
var ruleKeys = slices.Concat(
	[]key[Rule]{
		{name: "name", value: custom(func(place, *Rule, *node) {}, nameSchema),
			doc: "The name in counters and messages. When left out: `rule-N`, by position.", examples: `"listed"`},
	},
	inMatch(matchKeys),
	[]key[Rule]{
		{name: "over", value: custom(place.ruleOver, overSchema),
			doc: "Matches packets above a rate, or the first packet of a connection too many. A packet is charged to the rates of a list in " +
				"their order, until it exceeds one. A number of connections stands alone.",
			examples: `{"rate": "1000/s", "per": "from"}, {"rate": "10mbit/s", "per": "from"}, {"rate": "50/s", "per": "from", "ban": "10m"}, {"connections": 20, "per": "from/32"}`},
		{name: "not", value: custom(place.not, matchSchema),
			doc: "Keys of which none may match.", examples: `{"from": "$office"}`},
		{name: "then", value: into(word(thenWords.schema(), then), func(to *Rule) *Verdict { return &to.Then }),
			doc: "`reject` answers with a TCP reset or an ICMP error. `truncate` answers a DNS query with an empty response that sends the " +
				"client to TCP.", examples: `"drop", "reject", "truncate"`, must: "say what happens to the packets: then: drop"},
		{name: "slip", value: into(word(anyOf(whole(1, nil), text(positive)), slip), func(to *Rule) *uint32 { return &to.Slip }),
			doc: "With `truncate`: answer one query in this number, and drop the others. When left out: all are answered.", examples: `2`},
		{name: "sample", value: into(word(text("^1/[1-9][0-9]*$").titled("`1/N`"), sample), func(to *Rule) *uint32 { return &to.Sample }),
			doc: "The share of the rule's packets for `floodwall capture`.", examples: `"1/100"`},
		{name: "observe", value: into(yesOrNo, func(to *Rule) *bool { return &to.Observe }),
			doc: "Only count, and go on with the next rule.", usual: `false`, examples: `true`},
		{name: "placement", value: into(placementForm, func(to *Rule) *Placement { return &to.Placement }),
			doc: "The placement of this rule, in place of the policy's.", examples: `"raw"`},
	},
)

// notKeys are the keys of not. They are matchKeys with two differences: dns allows fewer values, and over is an error.
var notKeys = append(slices.DeleteFunc(slices.Clone(matchKeys), func(k key[Match]) bool { return k.name == "dns" }),
	key[Match]{name: "dns", value: custom(place.notDNS, dnsSchema)}, key[Match]{name: "over", value: custom(place.notOver, overSchema)})

// matchSchema is the schema of not.
var matchSchema = define("match", object(matchKeys).titled("match keys"))

// inMatch converts keys of a Match to keys of a Rule. Each then sets a field of the rule's Match.
func inMatch(keys []key[Match]) []key[Rule] {
	var lifted []key[Rule]
	for _, k := range keys {
		read := func(p place, key string, to *Rule, v *node) { k.value.read(p, key, &to.Match, v) }
		lifted = append(lifted, key[Rule]{name: k.name, value: value[Rule]{k.value.schema, read}, doc: k.doc, examples: k.examples})
	}
	return lifted
}

// entriesSchema returns the schema of a list of rules or services.
func entriesSchema[T any](name string, keys []key[T]) *schema {
	entry := define(name, object(keys).titled(name))
	return &schema{Title: "list of " + name + "s", Type: types{"array", "null"}, Items: entry}
}

// not parses the key not.
func (p place) not(to *Rule, v *node) { readKeys(p.in("not"), "it", v, notKeys, &to.Not) }

// rules parses the key rules.
func (p place) rules(to *Policy, v *node) {
	p.entries("rules", v, func(i int, n *node) {
		rule := Rule{Pos: n.Pos}
		rule.Name, rule.Named = p.name("rule", n, p.r.madeName(i+1, len(v.Items)))
		in, before := p.in("rule %s", wording.Quote(rule.Name)), len(p.r.errs)
		readKeys(in, "a rule", n, ruleKeys, &rule)
		if len(p.r.errs) == before {
			in.truncates(&rule, n)
			in.samples(&rule, n)
			in.connecting(&rule, n)
			in.contradictions(n)
		}
		to.Rules = append(to.Rules, rule)
	})
}

// noteNames records the names that the policy gives to entries.
func (r *reader) noteNames(entries []*node) {
	for _, n := range entries {
		if v := n.Get("name"); v != nil && v.Kind == yamltree.Word {
			r.given[v.Text] = true
		}
	}
}

// madeName returns the generated name of the unnamed rule with this number. If the policy gives that name to another
// rule, madeName uses a number that no rule has, so that no other name changes.
func (r *reader) madeName(number, rules int) string {
	name := fmt.Sprintf("rule-%d", number)
	for free := rules + 1; r.given[name] || r.taken(name); free++ {
		name = fmt.Sprintf("rule-%d", free)
	}
	return name
}

func (r *reader) taken(name string) bool {
	_, taken := r.reasons[name]
	return taken
}

var serviceKeys = []key[Service]{
	{name: "name", value: custom(func(place, *Service, *node) {}, nameSchema),
		doc: "The name in counters and messages.", examples: `"web"`, must: "name it, as in name: web"},
	{name: "port", value: into(ports, func(to *Service) *[]Port { return &to.Port }),
		doc: "The destination ports of the service.", examples: `["tcp/80", "tcp/443"]`, must: "say which port it is, as in port: tcp/443"},
	{name: "from", value: into(ends, func(to *Service) *[]Addr { return &to.From }),
		doc:      "The addresses that may use the service. It is closed to all others, also with `default: pass`. When left out: everybody.",
		examples: `"$office"`},
	{name: "track", value: into(word(switchSchema, tracking), func(to *Service) *Tracking { return &to.Track }),
		doc: "`false` keeps the packets of the service out of connection tracking, in both directions. `true` drops packets to the service " +
			"that belong to no connection. When left out: as the host does without Floodwall.", examples: `false, true`},
	{name: "guard", value: custom(place.guard, guardSchema),
		doc: "Protects a DNS resolver: limits, truncated answers, and proofs of the client's address.", examples: `"dns"`},
	{name: "syn", value: custom(place.syn, synSchema),
		doc: "Protects a TCP service from floods of SYNs and ACKs with SYN cookies. `protect` sends cookies while there are too many SYNs, " +
			"`always` for every SYN.", usual: `"off"`, examples: `"protect", {"mode": "router", "start": "5000/s"}`},
	{name: "udp", value: custom(place.udp, udpSchema),
		doc: "Protects a UDP service from floods, also from forged sources. During a flood, clients that the service has answered for a " +
			"while pass first, and all others within `limit` and `total`.", usual: `"off"`,
		examples: `"protect", {"start": "20000/s", "limit": {"rate": "100/s", "per": "from/24/56"}}`},
}

// services parses the key services.
func (p place) services(to *Policy, v *node) {
	p.entries("services", v, func(i int, n *node) {
		s := Service{Pos: n.Pos}
		var named bool
		s.Name, named = p.name("service", n, "")
		in := p.in("service %s", wording.Quote(s.Name))
		if !named {
			in = p.in("service %d", i+1)
		}
		readKeys(in, "a service", n, serviceKeys, &s)
		in.protectable(&s, n)
		in.protectedOnce(to.Services, s, n)
		in.trackedOneWay(to.Services, s, n)
		in.guardedPorts(&s, n)
		in.guardedOnce(to.Services, s, n)
		in.floodable(to.Services, s, n)
		to.Services = append(to.Services, s)
	})
}

// entries calls f for each entry of v, the list of key.
func (p place) entries(key string, v *node, f func(i int, n *node)) {
	switch v.Kind {
	case yamltree.Nothing, yamltree.Broken:
		return
	case yamltree.List:
		for i, n := range v.Items {
			before := len(p.r.errs)
			f(i, n)
			p.r.unsound[n.Pos] = p.r.unsound[n.Pos] || len(p.r.errs) > before
		}
		return
	}
	e := p.errorf(v.Pos, "%s must be a list, got %s", key, v)
	e.Hint = fmt.Sprintf("begin each of the %s with - in a line of its own", key)
}

// reserved are names of counters that are neither rules, services nor checks. A rule or service must not have such a name.
var reserved = []string{"default", "not-ip"}

// name parses the name of a rule or service before the other keys. If n has no name, name returns made. given reports whether n has a name.
func (p place) name(what string, n *node, made string) (name string, given bool) {
	name, at := made, n.Pos
	if v := n.Get("name"); v != nil && v.Kind == yamltree.Word {
		name, given, at = v.Text, true, v.Pos
		if f := nameFlaw(name); f != nil {
			p.flawed(at, "a "+what+"'s name", f)
		}
	} else if v != nil && v.Kind != yamltree.Nothing && v.Kind != yamltree.Broken {
		p.errorf(v.Pos, "a %s's name must be a single word, got %s", what, v)
	}
	if name == "" && !given {
		return "", false
	}
	first, taken := p.r.reasons[name]
	switch {
	case slices.Contains(reserved, name):
		p.errorf(at, "the name %s is taken: it is a reason of its own in counters", wording.Quote(name)).Hint = "choose another name"
	case taken:
		p.errorf(at, "the name %s is used twice, first in line %d", wording.Quote(name), first.Line).Hint =
			"rules and services share their names, as each is a counter: choose another"
	default:
		p.r.reasons[name] = at
	}
	return name, given
}

// sharesCheck reports whether name is also the name of a check.
func sharesCheck(name string) bool {
	_, ok := packet.CheckNamed(name)
	return ok
}
