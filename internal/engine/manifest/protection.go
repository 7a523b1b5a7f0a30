// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// modeBehind is the value of ir.Protection.Mode for services behind this host.
var modeBehind = (&ir.Protection{Router: true}).Mode()

// Protection is a protected service: how its connections are answered, and the counter slots of its packets.
type Protection struct {
	Service string                 `json:"service"`
	Mode    string                 `json:"mode"`   // host or router
	Method  string                 `json:"method"` // one of methodNames
	Line    int                    `json:"line,omitempty"`
	Ports   []ir.Range             `json:"ports,omitempty"` // the TCP ports; manifests of earlier versions have none
	Always  bool                   `json:"always,omitempty"`
	MSS     [2]uint16              `json:"mss"`    // the MSS announced in IPv4 and IPv6
	WScale  int                    `json:"wscale"` // -1: not offered
	Options []string               `json:"options"`
	Slots   [ir.NumOutcomes]uint32 `json:"slots"`
}

// methodNames are the names of the methods in the output of status.
var methodNames = map[ir.CookieMethod]string{
	0: "kernel", ir.MethodHost: "host", ir.MethodListener: "listener", ir.MethodRouter: "synproxy",
}

// AddProtections stores the protections of a program with the way in which each is answered.
func (m *Manifest) AddProtections(p *ir.Program, found []ir.Handshake) {
	for i, f := range found {
		m.Protections = append(m.Protections, newProtectionEntry(&p.Protections[i], &f))
	}
}

func newProtectionEntry(s *ir.Protection, f *ir.Handshake) Protection {
	e := Protection{
		Service: s.Service, Mode: s.Mode(), Method: methodNames[f.Method], Line: s.Line, Ports: s.Ports, Always: s.Always,
		MSS: f.MSS, WScale: -1, Options: []string{}, Slots: f.Slots,
	}
	for bit, name := range OptionNames {
		if f.Options>>bit&1 == 1 {
			e.Options = append(e.Options, name)
		}
	}
	if f.Options&ir.WindowScaling != 0 {
		e.WScale = int(f.WScale)
	}
	return e
}

// Name returns the name of the counter of an outcome.
func (e *Protection) Name(o ir.Outcome) string { return fmt.Sprintf("%s:%s", e.Service, o) }

// outcomeFingerprint is the function fingerprint for an outcome of a protected service.
func outcomeFingerprint(service string, o ir.Outcome) uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, "protection", service, o)
	return h.Sum64()
}

// Protects reports whether a TCP port belongs to a protected service. If behind is true, it compares the services behind this host, else the services
// on this host.
func (m *Manifest) Protects(port uint16, behind bool) bool {
	return slices.ContainsFunc(m.Protections, func(s Protection) bool {
		return (s.Mode == modeBehind) == behind && facts.Serves(s.Ports, port)
	})
}

// InKernel reports whether the kernel alone protects the service, without XDP.
func (e *Protection) InKernel() bool { return e.Method == methodNames[0] }

// Staying maps the index of each protection to its index in the manifest before, if both protect the same service. It leaves out protections that do
// not use XDP.
func (m *Manifest) Staying(before *Manifest) map[int]int {
	places := map[int]int{}
	for i, s := range m.Protections {
		then := slices.IndexFunc(before.Protections, func(b Protection) bool { return b.Service == s.Service })
		if then >= 0 && !s.InKernel() && !before.Protections[then].InKernel() {
			places[i] = then
		}
	}
	return places
}

// Routed is a protected service behind this host. With this data the service's servers can be surveyed again.
type Routed struct {
	Service  string       `json:"service"`
	Ports    []ir.Range   `json:"ports"`
	MSS      uint16       `json:"mss,omitempty"` // from the policy; 0: the MSS of the servers
	WScale   int          `json:"wscale"`        // from the policy; -1: the window scale of the servers
	Backends []netip.Addr `json:"backends,omitempty"`
}

// NoteRouted stores the services of a program that are behind this host.
func (m *Manifest) NoteRouted(p *ir.Program) {
	for _, s := range p.Protections {
		if s.Router {
			m.Routed = append(m.Routed, Routed{s.Service, s.Ports, s.MSS, s.WScale, s.Backends})
		}
	}
}

// Strict reports whether the policy needs the strict mode of conntrack.
func (m *Manifest) Strict() bool {
	return m != nil && slices.ContainsFunc(m.Protections, func(e Protection) bool { return e.Method == methodNames[ir.MethodRouter] })
}
