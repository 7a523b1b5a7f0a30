package control

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

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
var methodNames = map[ir.CookieMethod]string{
	0: "kernel", ir.MethodHost: "host", ir.MethodListener: "listener", ir.MethodRouter: "synproxy",
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
	for _, look := range []func() error{a.unchecked, a.roomForFlows, func() error { return a.translated(ctx, listening) }} {
		if err := look(); err != nil {
			return err
		}
	}
	for i := range p.Protections {
		s := &p.Protections[i]
		m, err := a.answeredBy(s, listening)
		if err == nil {
			err = a.findAnnounced(ctx, s, m, mtu)
		}
		if err != nil {
			return err
		}
	}
	a.fallBack()
	return nil
}

// answeredBy chooses how a service is answered for on the target, and notes what is lost.
func (a *apply) answeredBy(s *ir.Protection, listening []listener) (ir.CookieMethod, error) {
	switch {
	case a.target == compile.TargetXDP:
		m, lost, err := a.method(s, listening)
		a.note(lost)
		return m, err
	case s.Router:
		return ir.MethodRouter, nil
	}
	return 0, cookiesOn(s)
}

// findAnnounced finds out what SYN-ACKs for a service announce.
func (a *apply) findAnnounced(ctx context.Context, s *ir.Protection, m ir.CookieMethod, mtu int) error {
	if !s.Router {
		a.found = append(a.found, facts(s, m, mtu))
		return nil
	}
	found := ir.Handshake{Method: m}
	note, err := fromBackends(ctx, s, &found)
	a.found = append(a.found, found)
	a.note(note)
	return err
}

// note adds a note, none when it is "".
func (a *apply) note(text string) {
	if text != "" {
		a.notes = append(a.notes, text)
	}
}

// fallBack takes out of the program what this host, or the target, does not do of its protections.
func (a *apply) fallBack() {
	p := a.compiled.Program
	if a.target != compile.TargetXDP {
		program, notes := compile.For(p, a.target)
		a.compiled, a.notes = a.compiled.with(program), append(a.notes, notes...)
		if a.chosen() {
			a.notes = append(a.notes, "why protected services are without XDP: "+a.choice)
		}
		return
	}
	var lacking []int
	for i, f := range a.found {
		if f.Method == 0 {
			lacking = append(lacking, i)
		}
	}
	if lacking != nil {
		a.compiled = a.compiled.with(compile.WithoutCookies(p, lacking))
	}
}

// chosen reports whether the target is one for want of a better.
func (a *apply) chosen() bool { return strings.HasPrefix(a.choice, notTarget) }

// recordProtections notes what was found out, once the slots are planned.
func (a *apply) recordProtections() {
	for i := range a.found {
		a.found[i].Slots = a.plan.outcomes[i]
	}
	a.manifest.addProtections(a.compiled.Program, a.found)
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
