// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// untracked contains the packets that rules exempt from connection tracking, as far as the policy can express them.
type untracked struct {
	ports    saved.Values // values of packet.DPort
	loopback bool
	all      bool
	flows    []saved.Cond // packets of one direction; the policy also exempts the other direction
}

// exempted finds the rules that exempt packets from connection tracking and that have an equivalent in the policy. The equivalent is the port of a
// service, packets of this host to itself, or a flow that `untracked` can name. exempted reports all other rules as lost.
func exempted(rs *saved.Ruleset, devices []string, router bool, rep *saved.Report) (u untracked) {
	e := exemption{router: router, proxies: anyRule(rs, saved.IPv4|saved.IPv6, func(r *saved.Rule) bool { _, ok := r.Proxies(); return ok })}
	early := func(c *saved.Chain) bool {
		return (c.Hook == saved.HookPrerouting || c.Hook == saved.HookOutput) && c.Priority <= conntrackPriority
	}
	eachNotrack(rs, func(c *saved.Chain, r *saved.Rule) {
		if early(c) {
			e.learn(c, r)
		}
	})
	eachNotrack(rs, func(c *saved.Chain, r *saved.Rule) {
		why := ""
		switch {
		case c.Hook == saved.HookOutput && early(c):
			return // the packets of the rule are outgoing; the rules for the other direction determine the exemption of the policy
		case c.Hook != saved.HookNone && c.Priority > conntrackPriority:
			r.Notrack = false
			rep.Note(r.At, "has no effect: its chain comes behind connection tracking")
			return
		case c.Hook != saved.HookPrerouting:
			why = "its packets come by way of another chain"
		case u.add(r, devices):
			e.oneWay(r, rep)
			return
		default:
			if why = e.why(c, r); why == "" {
				e.add(&u, c, r, rep)
				return
			}
		}
		r.Tracked = true
		r.Side = append(r.Side, saved.Notracks+": "+why)
	})
	u.whole()
	return u
}

// conntrackPriority is the priority of conntrack's hook (kernel netfilter_ipv4.h, NF_IP_PRI_CONNTRACK). Chains up to it run before
// conntrack.
const conntrackPriority = -200

func eachNotrack(rs *saved.Ruleset, visit func(*saved.Chain, *saved.Rule)) {
	for _, t := range rs.Tables {
		for _, c := range t.Order {
			eachRule(c, func(r *saved.Rule) {
				if r.Notrack {
					visit(c, r)
				}
			})
		}
	}
}

// exemption is the packets that rules exempt from connection tracking, both incoming packets and those that the host sends.
type exemption struct {
	in, out []saved.Cond
	sent    []saved.Cond // like out, but including rules with a test that the policy cannot make, such as one of the device
	router  bool
	proxies bool // a service answers SYNs, and its connections behind it must be tracked
}

// flowsOf returns the packets that a rule exempts from connection tracking, for the families of its table.
func flowsOf(c *saved.Chain, r *saved.Rule) (list []saved.Cond) {
	alts := r.Alts
	if alts == nil {
		alts = []saved.Cond{{}}
	}
	for _, a := range alts {
		for _, f := range []saved.Family{saved.IPv4, saved.IPv6} {
			if of, ok := a.Possible(f); ok && c.Table.Families&f != 0 {
				list = append(list, bare(of))
			}
		}
	}
	return list
}

func (e *exemption) learn(c *saved.Chain, r *saved.Rule) {
	for _, f := range flowsOf(c, r) {
		if c.Hook == saved.HookOutput {
			any := f
			any.Unknown = nil
			e.sent = append(e.sent, any)
		}
		switch {
		case f.Unknown != nil || f.Limit != nil || f.Marks != nil || f.Devices != nil || f.Narrower != nil:
		case c.Hook == saved.HookOutput:
			e.out = append(e.out, f)
		default:
			e.in = append(e.in, f)
		}
	}
}

// why returns the reason why `untracked` cannot name the packets of r, or "".
func (e *exemption) why(c *saved.Chain, r *saved.Rule) string {
	flows := flowsOf(c, r)
	for _, f := range flows {
		broadcast := toAll(&f) && slices.Equal(f.Narrower, []string{saved.DirectedBroadcast})
		switch {
		case f.Unknown != nil || f.Marks != nil || f.Limit != nil || f.Narrower != nil && !broadcast:
			return "it asks for what `untracked` has no key for"
		case f.Devices != nil:
			return "it is for one device, and `untracked` for all"
		case !nameable(&f):
			return "it asks for what `untracked` has no key for"
		case before(c, r, &f):
			return "rules before it spare some of its packets"
		case e.proxies && f.Field[packet.Proto].Has(saved.ProtoTCP):
			return "SYNPROXY needs the connections of its services tracked"
		case !e.bothWays(&f):
			return "`untracked` takes the other direction, too, which these rules track"
		}
	}
	return ""
}

// nameable reports whether the keys of an entry of `untracked` can express f.
func nameable(f *saved.Cond) bool {
	fixed := func(a *saved.AddrSet) bool {
		return a == nil || !a.Local && !slices.ContainsFunc(a.Sets, func(s *saved.Set) bool { return s.Dynamic || s.Problem != "" })
	}
	for k, v := range f.Field {
		if v != nil && !slices.Contains([]packet.Field{packet.Proto, packet.DPort, packet.SPort, packet.Family}, packet.Field(k)) {
			return false
		}
	}
	if len(f.Payload) > 0 {
		return false
	}
	k := render(*f, func(*saved.AddrSet) []string { return []string{"x"} })
	return k.not == nil && f.Src.Out == nil && f.Dst.Out == nil && fixed(f.Src.In) && fixed(f.Dst.In)
}

// before reports whether an earlier rule than r may end the path of a packet of f through c.
func before(c *saved.Chain, r *saved.Rule, f *saved.Cond) bool {
	for i := range c.Rules {
		q := &c.Rules[i]
		if q == r {
			return false
		}
		if q.Notrack || slices.Contains([]saved.ActionKind{saved.ActNone, saved.ActDrop, saved.ActReject}, q.Act.Kind) {
			continue
		}
		if q.Alts == nil || slices.ContainsFunc(q.Alts, func(a saved.Cond) bool { return meet(a, *f) }) {
			return true
		}
	}
	return false
}

// meet reports whether a packet can match both a and b.
func meet(a, b saved.Cond) bool {
	both := a.And(b)
	_, four := both.Possible(saved.IPv4)
	_, six := both.Possible(saved.IPv6)
	return four || six
}

// reversed returns the condition for packets of the other direction.
func reversed(f saved.Cond) saved.Cond {
	f.Src, f.Dst = f.Dst, f.Src
	f.Field[packet.SPort], f.Field[packet.DPort] = f.Field[packet.DPort], f.Field[packet.SPort]
	return f
}

// toAll reports whether all packets of f go to addresses that are not those of one host (saved.HereBound). No packet comes
// from such an address.
func toAll(f *saved.Cond) bool {
	in := f.Dst.In
	return in != nil && in.Plain() && len(saved.Common(in.Ranges, saved.HereBound)) == len(in.Ranges) && slices.Equal(saved.Common(in.Ranges, saved.HereBound), saved.Join(in.Ranges))
}

// hosts reports whether f is from single addresses. These are not addresses of this host, because packets from the host itself do
// not come in.
func hosts(f *saved.Cond) bool {
	in := f.Src.In
	return in != nil && in.Plain() && !slices.ContainsFunc(in.Ranges, func(r netipx.IPRange) bool { return r.From() != r.To() })
}

// bothWays reports whether the rules also exempt the packets of the other direction, as far as such packets arrive.
func (e *exemption) bothWays(f *saved.Cond) bool {
	back := reversed(*f)
	return toAll(f) || covered(e.in, &back) || !e.router && (hosts(f) || f.Src.In != nil && covered(e.out, &back))
}

func covered(list []saved.Cond, f *saved.Cond) bool {
	return slices.ContainsFunc(list, func(k saved.Cond) bool { return k.Covers(f) })
}

// add adds the packets that r exempts from connection tracking to u. It reports how the policy differs.
func (e *exemption) add(u *untracked, c *saved.Chain, r *saved.Rule, rep *saved.Report) {
	for _, f := range flowsOf(c, r) {
		f.Narrower = nil
		back := reversed(f)
		switch {
		case toAll(&f) || covered(e.in, &back) || hosts(&f):
		default:
			rep.Lose(r.At, "`untracked` takes all packets to these addresses, too: if one of them is this host's, connections to it are not tracked")
		}
		u.flows = append(u.flows, f)
	}
	e.oneWay(r, rep)
}

// oneWay adds a note if the rules exempt only incoming packets, while the policy also exempts the answers to them.
func (e *exemption) oneWay(r *saved.Rule, rep *saved.Report) {
	for _, a := range r.Alts {
		if a.Devices != nil {
			return
		}
		back := reversed(a)
		if !covered(e.in, &back) && !slices.ContainsFunc(e.sent, func(k saved.Cond) bool { return meet(k, back) }) {
			rep.Note(r.At, "no rule takes the answers out of connection tracking; the policy does")
			return
		}
	}
}

// whole replaces the entries by `all` if they cover all packets of both families. Otherwise it removes each entry that is the other direction of
// another entry.
func (u *untracked) whole() {
	var families saved.Values
	for _, f := range u.flows {
		if f.Everything() {
			families = append(families, f.Field[packet.Family]...)
			if f.Field[packet.Family] == nil {
				families = saved.FamilyValues[saved.IPv4|saved.IPv6]
			}
		}
	}
	if u.all = saved.Normalize(families).Full(packet.Family); u.all {
		u.flows, u.ports, u.loopback = nil, nil, false
		return
	}
	var list []flat
	for i := range u.flows {
		f := u.flows[i]
		back := reversed(f)
		if !slices.ContainsFunc(u.flows[:i], func(g saved.Cond) bool { return g.Covers(&f) || g.Covers(&back) }) {
			list = append(list, flat{Cond: f})
		}
	}
	u.flows = nil
	for _, f := range bothFamilies(fold(byFamily(list, saved.IPv4)), fold(byFamily(list, saved.IPv6))) {
		u.flows = append(u.flows, f.Cond)
	}
}

// byFamily returns the rules of a list for packets of one family.
func byFamily(list []flat, family saved.Family) (out []flat) {
	for _, f := range list {
		if c, ok := f.Possible(family); ok {
			f.Cond = bare(c)
			out = append(out, f)
		}
	}
	return out
}

// traffic returns the value of the policy's key `untracked`, or "".
func (u *untracked) traffic(w *writer) string {
	if u.all {
		return "all"
	}
	var list []string
	if u.loopback {
		list = append(list, "loopback")
	}
	for _, f := range u.flows {
		w.current = &flat{Cond: f, name: "untracked"}
		list = append(list, "{"+strings.Join(render(f, w.words).is, ", ")+"}")
	}
	if list == nil {
		return ""
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// stateless changes tests of states for packets that the rules exempt from connection tracking, but the policy does not. For the rules, such packets
// are untracked; for the policy, they have another state. A rule that tests for untracked packets is changed to test for these packets directly. A
// rule that tests for other states is changed to exclude these packets.
func stateless(rs *saved.Ruleset, devices []string, rep *saved.Report) {
	for _, f := range []saved.Family{saved.IPv4, saved.IPv6} {
		kept := keptAway(rs, f, devices)
		if len(kept) == 0 {
			continue
		}
		for _, t := range rs.Tables {
			if t.Families&f == 0 {
				continue
			}
			for _, c := range t.Order {
				for i := range c.Rules {
					asUntracked(&c.Rules[i], f, t.Families, kept, rep)
				}
			}
		}
	}
}

// keptAway returns the packets of a family that rules exempt from connection tracking, but the policy does not.
func keptAway(rs *saved.Ruleset, f saved.Family, devices []string) (kept []saved.Cond) {
	for _, t := range rs.Tables {
		for _, c := range t.Order {
			for i := range c.Rules {
				r := &c.Rules[i]
				if t.Families&f == 0 || c.Hook != saved.HookPrerouting || !r.Tracked {
					continue
				}
				for _, a := range r.Alts {
					through := !slices.ContainsFunc(a.Devices, func(d saved.DeviceTest) bool {
						return slices.ContainsFunc(devices, func(name string) bool { return !d.Holds(name) })
					})
					a.Devices = nil
					if through && a.Unknown == nil && a.Limit == nil && a.Marks == nil {
						kept = append(kept, a)
					}
				}
			}
		}
	}
	return kept
}

// maxKept is the largest number of alternatives into which a rule is divided. If there would be more, its test of the state stays as
// it is.
const maxKept = 64

// asUntracked changes one rule, for packets of family f. of contains all families of the rule's table.
func asUntracked(r *saved.Rule, f, of saved.Family, kept []saved.Cond, rep *saved.Report) {
	out := []saved.Cond{} // nil would mean every packet
	changed := false
	for _, a := range r.Alts {
		state := a.Field[packet.State]
		if state == nil {
			out = append(out, a)
			continue
		}
		changed = true
		other := a
		for _, one := range []saved.Family{saved.IPv4, saved.IPv6} {
			if of&one != 0 && one != f {
				out = append(out, other.With(packet.Family, saved.FamilyValues[one]))
			}
		}
		if of != f {
			a = a.With(packet.Family, saved.FamilyValues[f])
		}
		any := a
		any.Field[packet.State] = nil
		rest := []saved.Cond{a}
		for _, k := range kept {
			if state.Has(packet.StateUntracked) {
				out = append(out, any.And(k))
			}
			var left []saved.Cond
			for _, c := range rest {
				left = append(left, c.Without(k, f)...)
			}
			rest = left
		}
		out = append(out, rest...)
	}
	switch {
	case !changed:
	case len(out) > maxKept:
		rep.Lose(r.At, "asks for a state that packets do not have in the policy, as they are tracked there")
	default:
		r.Alts = out
	}
}

// add adds the packets that r exempts, if ports or loopback can express them.
func (u *untracked) add(r *saved.Rule, devices []string) bool {
	var all saved.Values
	lo := false
	for _, c := range r.Alts {
		of := c.Devices
		c.Devices = nil
		if len(of) == 1 && !of[0].Not && slices.Equal(of[0].Names, []string{"lo"}) && c.Everything() && c.Unknown == nil {
			lo = true
			continue
		}
		if slices.ContainsFunc(of, func(t saved.DeviceTest) bool {
			return slices.ContainsFunc(devices, func(d string) bool { return !t.Holds(d) })
		}) {
			return false
		}
		ports := c.Field[packet.DPort]
		c.Field[packet.DPort], c.Field[packet.Proto], c.Field[packet.Family] = nil, nil, nil
		if ports == nil || ports.Has(packet.PortNone) || !c.Everything() || c.Unknown != nil || c.Limit != nil || c.Marks != nil {
			return false
		}
		all = append(all, ports...)
	}
	u.ports = saved.Normalize(append(u.ports, all...))
	u.loopback = u.loopback || lo
	return true
}

// service returns the policy's line for the untracked ports, as a service. A service passes the packets that reach it. After a rule that drops all
// packets, no packet reaches the service. If the default is to pass, these packets would pass without the service.
func (u untracked) service() string {
	if len(u.ports) == 0 {
		return ""
	}
	r := renderer{}
	r.ports("port", u.ports)
	return fmt.Sprintf("  - {name: untracked, %s, track: false}  # in both directions, and over IPv4 and IPv6\n", strings.Join(r.keys.is, ", "))
}
