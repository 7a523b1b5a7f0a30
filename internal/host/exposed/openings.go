// SPDX-License-Identifier: Apache-2.0

package exposed

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/policy"
)

// Opening describes packets to this host that a service or a rule passes, from all addresses or from some.
type Opening struct {
	Name    string        `json:"name,omitempty"`
	Service bool          `json:"service,omitempty"` // whether it is a service
	Protos  []uint8       `json:"protos,omitempty"`  // nil: all protocols
	Ports   []policy.Port `json:"ports,omitempty"`   // nil: all ports of the protocols
}

// Openings returns the openings of a policy. It returns nil if the policy passes packets by default: then openings do not say which ports are closed.
// A rule that passes only replies, or only packets from some port, is no opening, because it lets no client begin.
func Openings(p *policy.Policy) []Opening {
	if p.Default == policy.Pass {
		return nil
	}
	list := []Opening{} // a policy may open nothing
	for _, s := range p.Services {
		list = append(list, Opening{Name: s.Name, Service: true, Ports: s.Port})
	}
	for _, r := range p.Rules {
		replies := r.Match.State != nil && !slices.Contains(r.Match.State, packet.StateNew)
		if r.Then != policy.Pass || r.Observe || len(r.Over) > 0 || replies || r.Match.SPort != nil || r.Match.ICMP != nil {
			continue
		}
		list = append(list, Opening{Name: r.Name, Protos: r.Match.Proto, Ports: r.Match.Port})
	}
	return list
}

// Passes reports whether an opening is for a port, or for a protocol without ports.
func Passes(openings []Opening, s sockets.Service) bool {
	return slices.ContainsFunc(openings, func(o Opening) bool { return o.passes(s) })
}

func (o Opening) passes(s sockets.Service) bool {
	if o.Protos != nil && !slices.Contains(o.Protos, s.Proto) {
		return false
	}
	return o.Ports == nil || slices.ContainsFunc(o.Ports, func(p policy.Port) bool { return covers(p, s) })
}

func covers(p policy.Port, s sockets.Service) bool {
	ports := s.Proto == unix.IPPROTO_TCP || s.Proto == unix.IPPROTO_UDP
	return ports && (p.Proto == 0 || p.Proto == s.Proto) && p.First <= s.Port && s.Port <= p.Last
}
