// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// OptionNames are the names of the TCP options, in the order of their bits in ir.TCPOptions.
var OptionNames = []string{"wscale", "sack", "timestamps", "ecn"}

// Protections are the protected services of a policy, adapted to a target and a host.
type Protections struct {
	Program *ir.Program    // the program without the parts that the host or the target does not support
	Found   []ir.Handshake // in the order of ir.Program.Protections
	Notes   []string
}

// Plan decides how a target answers for the protected services of a program, and which options SYN-ACKs announce. mode is the mode of XDP. withoutXDP
// says why the target is not XDP; it is "" if the user asked for that target.
func Plan(program *ir.Program, host *facts.Facts, t plan.Target, mode datapath.Mode, withoutXDP string) (*Protections, error) {
	p := &Protections{Program: program}
	if len(program.Protections) == 0 {
		return p, nil
	}
	p.Notes = slices.Concat(groNotes(program, host, t), redirectNotes(program, host))
	if t == plan.TargetXDP {
		bytes, err := xdpgen.FlowMemory(program)
		if err != nil {
			return nil, err
		}
		p.note(flowMemoryNote(uint64(bytes), host.Memory))
	}
	for i := range program.Protections {
		s := &program.Protections[i]
		m, lost, err := methodOn(t, s, host, mode)
		if err != nil {
			return nil, err
		}
		p.note(lost)
		found, note := fromHost(s, m, host), ""
		if s.Router {
			found, note = fromServers(s, m, host.Servers[s.Service])
		}
		p.Found = append(p.Found, found)
		p.note(note)
	}
	p.fallBack(t, withoutXDP)
	return p, nil
}

// methodOn returns the method with which a target answers for a service, and a description of the loss that results from it.
func methodOn(t plan.Target, s *ir.Protection, host *facts.Facts, mode datapath.Mode) (m ir.CookieMethod, lost string, err error) {
	switch {
	case t == plan.TargetXDP:
		return method(s, host, mode)
	case s.Router:
		return ir.MethodRouter, "", nil
	}
	return 0, "", cookiesOn(s, host)
}

// note adds a note unless it is "".
func (p *Protections) note(text string) {
	if text != "" {
		p.Notes = append(p.Notes, text)
	}
}

// fallBack removes the protections, or parts of them, that this host or the target does not support from the program.
func (p *Protections) fallBack(t plan.Target, withoutXDP string) {
	if t != plan.TargetXDP {
		program, notes := plan.For(p.Program, t)
		p.Program, p.Notes = program, append(p.Notes, notes...)
		if withoutXDP != "" {
			p.note("why protected services are without XDP: " + withoutXDP)
		}
		return
	}
	var lacking []int
	for i, f := range p.Found {
		if f.Method == 0 {
			lacking = append(lacking, i)
		}
	}
	if lacking != nil {
		p.Program = plan.WithoutCookies(p.Program, lacking)
	}
}
