package control

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	xdpgen "github.com/floodwall/floodwall/internal/codegen/xdp"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/hostfacts"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/plan"
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

// optionNames are the options of TCP in the order of their bits.
var optionNames = []string{"wscale", "sack", "timestamps", "ecn"}

// protections are the protected services of a policy, as a target and a host have them.
type protections struct {
	program *ir.Program    // without what the host, or the target, does not do
	found   []ir.Handshake // in the order of ir.Program.Protections
	notes   []string
}

// planProtections decides how the protected services of a policy are answered for on a target, and what SYN-ACKs announce.
// choice says why it is this target.
func planProtections(c *Compiled, t plan.Target, mode datapath.Mode, choice string) (*protections, error) {
	host := c.host
	p := &protections{program: c.Program}
	if len(c.Program.Protections) == 0 {
		return p, nil
	}
	p.notes = slices.Concat(groNotes(c.Program, host, t), redirectNotes(c.Program, host))
	if t == plan.TargetXDP {
		bytes, err := xdpgen.FlowMemory(c.Program)
		if err != nil {
			return nil, err
		}
		p.note(flowRoomNote(uint64(bytes), host.Memory))
	}
	for i := range c.Program.Protections {
		s := &c.Program.Protections[i]
		m, lost, err := methodOn(t, s, host, mode)
		if err != nil {
			return nil, err
		}
		p.note(lost)
		found, note := fromHost(s, m, host), ""
		if s.Router {
			found, note = fromServers(s, m, host.Servers[s.Service])
		}
		p.found = append(p.found, found)
		p.note(note)
	}
	p.fallBack(t, choice)
	return p, nil
}

// methodOn chooses how a service is answered for on a target, and says what is lost.
func methodOn(t plan.Target, s *ir.Protection, host *hostfacts.Facts, mode datapath.Mode) (m ir.CookieMethod, lost string, err error) {
	switch {
	case t == plan.TargetXDP:
		return method(s, host, mode)
	case s.Router:
		return ir.MethodRouter, "", nil
	}
	return 0, "", cookiesOn(s, host)
}

// note adds a note, none when it is "".
func (p *protections) note(text string) {
	if text != "" {
		p.notes = append(p.notes, text)
	}
}

// fallBack leaves out of the program what this host, or the target, does not do of its protections.
func (p *protections) fallBack(t plan.Target, choice string) {
	if t != plan.TargetXDP {
		program, notes := plan.For(p.program, t)
		p.program, p.notes = program, append(p.notes, notes...)
		if strings.HasPrefix(choice, notTarget) { // for want of a better
			p.note("why protected services are without XDP: " + choice)
		}
		return
	}
	var lacking []int
	for i, f := range p.found {
		if f.Method == 0 {
			lacking = append(lacking, i)
		}
	}
	if lacking != nil {
		p.program = plan.WithoutCookies(p.program, lacking)
	}
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
	for bit, name := range optionNames {
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
