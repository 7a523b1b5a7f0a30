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
	return fmt.Sprintf("\nservices:\n  - {name: untracked, %s, track: false}  # in both directions, and over IPv4 and IPv6\n", strings.Join(r.keys.is, ", "))
}
