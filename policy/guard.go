package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// amplifying are the types whose responses are many times as long as the query, and that no stub resolver asks for again
// and again: ANY, RRSIG, which many servers answer with all signatures of a name as they do ANY (RFC 8482, 3), DNSKEY,
// whose keys and signatures are the longest records of a signed zone, and TXT, which anybody can make as long as he likes
// in a zone of his own. Who needs them comes back over TCP. NSEC is not one: it is a short record with one signature.
var amplifying = []uint32{
	packet.DNSTypes["ANY"], packet.DNSTypes["RRSIG"], packet.DNSTypes["DNSKEY"], packet.DNSTypes["TXT"],
}

// defaultGuard is `guard: dns`. What one client asks for is far below 20 queries a second over time, and a page with many
// hosts asks 40 at once; behind the addresses of a /24 are more clients, not all of them busy. A verified client can be a
// resolver of many. Of one zone, clients ask for 100 names a second that do not exist only if programs do so: lists of bad senders, and floods. A resolver
// that waits for a server which does not answer has some hundred places for it (unbound: 1,024 a thread, for seconds each).
func defaultGuard(at Pos) *Guard {
	over := func(n uint64, burst uint64) Over { return Over{Pos: at, Rate: n, Per: time.Second, Burst: burst} }
	by := func(v4, v6 int, o Over) Over { o.From = &PrefixLen{v4, v6}; return o }
	total, replies, names := over(50_000, 50_000), over(100_000, 100_000), over(100, 100)
	return &Guard{
		Pos:      at,
		Limits:   []Over{by(defaultV4, defaultV6, over(20, 40)), by(24, 56, over(50, 100))},
		Total:    &total,
		Verified: []Over{by(defaultV4, defaultV6, over(1000, 2000))},
		Types:    slices.Clone(amplifying),
		Replies:  &replies,
		Names:    &names,
		Responses: &Over{
			Pos: at, Rate: 20_000_000, Per: time.Second, Bits: true, Burst: 20_000_000, To: &PrefixLen{24, 56},
		},
		Verify: time.Hour,
	}
}

// guardWord reads the value of guard where it is the kind alone.
func guardWord(text string) (bool, *flaw) {
	ok, f := choice(guardWords)(text)
	if on, isSwitch := switches[text]; isSwitch && on {
		f.hintf("write guard: dns")
	} else if isSwitch {
		f.hintf("leave guard out")
	}
	return ok, f
}

var guardWords = map[string]bool{"dns": true}

var guardKeys = []key[Guard]{
	{"type", func(p place, _ *Guard, v *node) { scalarOf(p, "type", v, choice(guardWords)) }},
	{"limit", func(p place, to *Guard, v *node) { to.Limits = p.guardLimits("limit", v) }},
	{"total", func(p place, to *Guard, v *node) { to.Total = p.totalRate("total", v) }},
	{"verified", func(p place, to *Guard, v *node) { to.Verified = p.guardLimits("verified", v) }},
	{"types", place.guardTypes},
	{"replies", func(p place, to *Guard, v *node) { to.Replies = p.totalRate("replies", v) }},
	{"names", func(p place, to *Guard, v *node) { to.Names = p.zoneNames(v) }},
	{"responses", place.responses},
	{"verify", place.verify},
	{"secret", func(p place, to *Guard, v *node) { to.Secret = scalarOf(p, "secret", v, secretPath) }},
	{"observe", func(p place, to *Guard, v *node) { to.Observe = scalarOf(p, "observe", v, yesNo) }},
}

// guard reads the key guard.
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
	seen := readKeys(p.in("guard"), "it", v, guardKeys, to.Guard)
	p.in("guard").require(v, seen, "type", "write type: dns, the one guard that there is")
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

func (p place) guardLimits(key string, v *node) []Over {
	if isOff(v) {
		return nil
	}
	return p.overs(key, v)
}

// totalRate reads a limit for all together: a rate, or a mapping with a burst.
func (p place) totalRate(key string, v *node) *Over {
	if isOff(v) {
		return nil
	}
	return p.rateForAll(key, v, rateOrOff)
}

// rateForAll reads a limit for all together, whose rate alone read takes.
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

// zoneNames reads the limit by which a zone is flooded.
func (p place) zoneNames(v *node) *Over {
	if isOff(v) {
		return nil
	}
	before := len(p.r.errs)
	o := p.totalRate("names", v)
	if o != nil && len(p.r.errs) == before && o.Bits {
		p.errorf(v.Pos, "names limits responses, got a rate in bits").Hint = "write names: 100/s"
	}
	return o
}

// responses reads the limit on what leaves.
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
		if f != nil && strings.HasPrefix(f.hint, "leave timeout out") {
			f.hint = "write off where TCP is to verify nobody"
		}
		return d, f
	})
}

// guardedPorts reports ports of a service, which n is, that its guard cannot guard. Without TCP nobody is verified by it.
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

// guardedOnce reports that a service, which n is, shares a port of UDP with an earlier one that has a guard, too: what the
// resolver sends is judged by its port alone.
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

// ofUDP are the ports that are of UDP, or of UDP and TCP.
func ofUDP(ports []Port) []Port {
	return slices.DeleteFunc(slices.Clone(ports), func(p Port) bool { return p.Proto == protoTCP })
}

// hasTCP reports whether any of ports is of TCP.
func hasTCP(ports []Port) bool {
	return slices.ContainsFunc(ports, func(p Port) bool { return p.Proto != protoUDP })
}
