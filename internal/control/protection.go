package control

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/ir"
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
var methodNames = map[compile.Method]string{
	0: "kernel", compile.MethodHost: "host", compile.MethodListener: "listener", compile.MethodRouter: "synproxy",
}

// optionNames are the options of TCP in the order of their bits.
var optionNames = []string{"wscale", "sack", "timestamps", "ecn"}

// protect finds out how protected services are answered for, and what that announces.
func (a *apply) protect(ctx context.Context) error {
	p := a.compiled.Program
	if len(p.Protections) == 0 {
		return nil
	}
	listening, err := listeners()
	if err != nil {
		return err
	}
	mtu, err := leastMTU(a.devices())
	if err != nil {
		return err
	}
	if err := a.unchecked(); err != nil {
		return err
	}
	var lacking []int
	for i := range p.Protections {
		s := &p.Protections[i]
		m, lost := compile.Method(0), ""
		switch {
		case a.target == compile.TargetXDP:
			m, lost, err = a.method(s, listening)
		case s.Router:
			m = compile.MethodRouter
		default:
			err = cookiesOn(s)
		}
		if err != nil {
			return err
		}
		if m == 0 {
			lacking = append(lacking, i)
		}
		if lost != "" {
			a.notes = append(a.notes, lost)
		}
		var found compile.Protect
		if !s.Router {
			found = facts(s, m, mtu)
		} else {
			found.Method = m
			note, err := fromBackends(ctx, s, &found)
			if err != nil {
				return err
			}
			if note != "" {
				a.notes = append(a.notes, note)
			}
		}
		a.found = append(a.found, found)
	}
	if a.target == compile.TargetXDP {
		if lacking != nil {
			a.compiled = a.compiled.with(compile.WithoutCookies(p, lacking))
		}
		return nil
	}
	program, notes := compile.For(p, a.target)
	a.compiled, a.notes = a.compiled.with(program), append(a.notes, notes...)
	return nil
}

// protections notes what was found out, once the slots are planned.
func (a *apply) protections() {
	for i := range a.found {
		a.found[i].Slots = a.plan.outcomes[i]
	}
	a.manifest.protections(a.compiled.Program, a.found)
}

// protections notes what was found out about the protections of a program.
func (m *manifest) protections(p *ir.Program, found []compile.Protect) {
	for i, f := range found {
		s := &p.Protections[i]
		e := protectionEntry{
			Service: s.Service, Mode: s.Mode(), Method: methodNames[f.Method], Line: s.Line, Always: s.Always,
			MSS: f.MSS, WScale: -1, Options: []string{}, Slots: f.Slots,
		}
		for bit, name := range optionNames {
			if f.Options>>bit&1 == 1 {
				e.Options = append(e.Options, name)
			}
		}
		if f.Options&compile.WindowScaling != 0 {
			e.WScale = int(f.WScale)
		}
		m.Protections = append(m.Protections, e)
	}
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
