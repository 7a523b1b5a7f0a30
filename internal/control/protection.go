package control

import (
	"fmt"
	"hash/fnv"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/protect"
)

// protectionEntry is a protected service: how it is answered for, and what is counted of it.
type protectionEntry struct {
	Service string                 `json:"service"`
	Mode    string                 `json:"mode"`   // host or router
	Method  string                 `json:"method"` // methodNames
	Line    int                    `json:"line,omitempty"`
	Always  bool                   `json:"always,omitempty"`
	MSS     [2]uint16              `json:"mss"`    // announced in IPv4 and IPv6
	WScale  int                    `json:"wscale"` // -1: not offered
	Options []string               `json:"options"`
	Slots   [ir.NumOutcomes]uint32 `json:"slots"`
}

// methodNames are the methods in the words of status.
var methodNames = map[ir.CookieMethod]string{
	0: "kernel", ir.MethodHost: "host", ir.MethodListener: "listener", ir.MethodRouter: "synproxy",
}

// addProtections notes what was found out about the protections of a program.
func (m *manifest) addProtections(p *ir.Program, found []ir.Handshake) {
	for i, f := range found {
		m.Protections = append(m.Protections, newProtectionEntry(&p.Protections[i], &f))
	}
}

func newProtectionEntry(s *ir.Protection, f *ir.Handshake) protectionEntry {
	e := protectionEntry{
		Service: s.Service, Mode: s.Mode(), Method: methodNames[f.Method], Line: s.Line, Always: s.Always,
		MSS: f.MSS, WScale: -1, Options: []string{}, Slots: f.Slots,
	}
	for bit, name := range protect.OptionNames {
		if f.Options>>bit&1 == 1 {
			e.Options = append(e.Options, name)
		}
	}
	if f.Options&ir.WindowScaling != 0 {
		e.WScale = int(f.WScale)
	}
	return e
}

// name is that of the counter of an outcome.
func (e *protectionEntry) name(o ir.Outcome) string { return fmt.Sprintf("%s:%s", e.Service, o) }

// outcomeFingerprint is fingerprint for an outcome of a protected service.
func outcomeFingerprint(service string, o ir.Outcome) uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, "protection", service, o)
	return h.Sum64()
}

// inKernel reports whether XDP has no part in it.
func (e *protectionEntry) inKernel() bool { return e.Method == methodNames[0] }
