package manifest

import (
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// OptionNames are the options of TCP in the order of their bits.
var OptionNames = []string{"wscale", "sack", "timestamps", "ecn"}

// Protections are the protected services of a policy, as a target and a host have them.
type Protections struct {
	Program *ir.Program    // without what the host, or the target, does not do
	Found   []ir.Handshake // in the order of ir.Program.Protections
	Notes   []string
}

// Plan decides how the protected services of a program are answered for on a target, and what SYN-ACKs announce. mode is that of
// XDP. withoutXDP says why the target is not XDP, "" where somebody asked for it.
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

// methodOn chooses how a service is answered for on a target, and says what is lost.
func methodOn(t plan.Target, s *ir.Protection, host *facts.Facts, mode datapath.Mode) (m ir.CookieMethod, lost string, err error) {
	switch {
	case t == plan.TargetXDP:
		return method(s, host, mode)
	case s.Router:
		return ir.MethodRouter, "", nil
	}
	return 0, "", cookiesOn(s, host)
}

// note adds a note, none when it is "".
func (p *Protections) note(text string) {
	if text != "" {
		p.Notes = append(p.Notes, text)
	}
}

// fallBack leaves out of the program what this host, or the target, does not do of its protections.
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
