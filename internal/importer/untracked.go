package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/packet"
)

// untracked is what rules keep away from connection tracking, as far as the policy can say it.
type untracked struct {
	ports    saved.Values // as packet.DPort
	loopback bool
}

// exempted finds the rules that take packets out of connection tracking by their port, or that come from this host. Of the
// others it says that they are lost. It does not ask which rules stand before them.
func exempted(rs *saved.Ruleset, devices []string) (u untracked) {
	for _, t := range rs.Tables {
		for _, c := range t.Order {
			for i := range c.Rules {
				if r := &c.Rules[i]; r.Notrack && !(c.Hook == saved.HookPrerouting && u.add(r, devices)) {
					r.Side = append(r.Side, saved.Notracks)
				}
			}
		}
	}
	return u
}

// stateless brings the states that rules ask for in line with what the rules keep away from connection tracking, and the policy does
// not: such packets are untracked for the rules, and have another state for the policy. A rule that asks for untracked ones asks
// for those packets themselves, and one that asks for other states leaves them out.
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

// keptAway is the packets of a family that rules take out of connection tracking, and the policy does not.
func keptAway(rs *saved.Ruleset, f saved.Family, devices []string) (kept []saved.Cond) {
	for _, t := range rs.Tables {
		for _, c := range t.Order {
			for i := range c.Rules {
				r := &c.Rules[i]
				if t.Families&f == 0 || c.Hook != saved.HookPrerouting || !r.Notrack || !slices.Contains(r.Side, saved.Notracks) {
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

// maxKept is into how many alternatives a rule is divided before its state is left as it is.
const maxKept = 64

// asUntracked changes one rule, for packets of a family of those of its table.
func asUntracked(r *saved.Rule, f, of saved.Family, kept []saved.Cond, rep *saved.Report) {
	out := []saved.Cond{} // nil would be every packet
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

// add adds what r exempts, if the policy can say it.
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

// service is the lines of the policy for what is not tracked. A service passes what gets to it; that is nothing behind a
// rule that drops all, and where the default is to pass it passes already.
func (u untracked) service() string {
	if len(u.ports) == 0 {
		return ""
	}
	r := renderer{}
	r.ports("port", u.ports)
	return fmt.Sprintf("  - {name: untracked, %s, track: false}  # in both directions, and over IPv4 and IPv6\n", strings.Join(r.keys.is, ", "))
}
