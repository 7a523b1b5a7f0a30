package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/packet"
)

// untracked is what rules keep away from connection tracking, as far as the policy can say it.
type untracked struct {
	ports    values // as packet.DPort
	loopback bool
}

// exempted finds the rules that take packets out of connection tracking by their port, or that come from this host. Of the
// others it says that they are lost. It does not ask which rules stand before them.
func (rs *ruleset) exempted(devices []string) (u untracked) {
	for _, t := range rs.tables {
		for _, c := range t.order {
			for i := range c.rules {
				if r := &c.rules[i]; r.notrack && !(c.hook == hookPrerouting && u.add(r, devices)) {
					r.side = append(r.side, notracks)
				}
			}
		}
	}
	return u
}

// add adds what r exempts, if the policy can say it.
func (u *untracked) add(r *rule, devices []string) bool {
	var all values
	lo := false
	for _, c := range r.alts {
		of := c.devices
		c.devices = nil
		if len(of) == 1 && !of[0].not && slices.Equal(of[0].names, []string{"lo"}) && c.everything() && c.unknown == nil {
			lo = true
			continue
		}
		if slices.ContainsFunc(of, func(t deviceTest) bool {
			return slices.ContainsFunc(devices, func(d string) bool { return !t.holds(d) })
		}) {
			return false
		}
		ports := c.field[packet.DPort]
		c.field[packet.DPort], c.field[packet.Proto], c.field[packet.Family] = nil, nil, nil
		if ports == nil || ports.has(packet.PortNone) || !c.everything() || c.unknown != nil || c.limit != nil || c.marks != nil {
			return false
		}
		all = append(all, ports...)
	}
	u.ports = normalize(append(u.ports, all...))
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
	return fmt.Sprintf("\nservices:\n  - {name: untracked, %s, track: false}  # in both directions, and over IPv4 and IPv6\n", strings.Join(r.keys.is, ", "))
}
