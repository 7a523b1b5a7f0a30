package control

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// ProtectionStatus is how the protection of a service stands.
type ProtectionStatus struct {
	Service string    `json:"service"`
	Mode    string    `json:"mode"`              // host or router
	Method  string    `json:"method"`            // host, listener, synproxy; kernel: XDP, or netfilter, only limits SYNs
	Always  bool      `json:"always,omitempty"`  // every SYN is answered with a cookie
	Active  bool      `json:"active"`            // SYNs are answered with cookies at the moment
	Left    float64   `json:"left,omitempty"`    // seconds for which that goes on when the flood ends now
	Refused float64   `json:"refused,omitempty"` // seconds for which it rests, as the kernel took no connection, or as it is to end
	Flows   FlowTable `json:"flows"`
	MSS     [2]uint16 `json:"mss"`    // announced, in IPv4 and IPv6
	WScale  int       `json:"wscale"` // announced; -1: not offered
	Options []string  `json:"options"`
}

// FlowTable is the table of connections that are remembered, one for all protected services.
type FlowTable struct {
	Entries  int `json:"entries"`
	Capacity int `json:"capacity"`
}

// outcomeVerdicts are what is done with packets of an outcome, in the words of status.
var outcomeVerdicts = [ir.NumOutcomes]string{
	ir.SynAnswered: "sent", ir.SynLimited: "drop", ir.AckProved: "pass", ir.AckInvalid: "drop", ir.AckAsked: "asked",
	ir.SynAuthenticated: "pass",
}

// outcomes reports what became of packets of protected services, in the manner of rules.
func (s *Status) outcomes(m *manifest.Manifest, c *manifest.Counts) {
	for i := range m.Protections {
		e := &m.Protections[i]
		s.proxied(e, i, c)
		if !c.Program || e.InKernel() {
			continue
		}
		for o := range ir.NumOutcomes {
			if e.Slots[o] == 0 { // it was loaded by a version that does not count it
				continue
			}
			n := c.Slot(e.Slots[o])
			s.Rules = append(s.Rules, RuleStatus{Name: e.Name(o), Stage: plan.StageXDP, Why: "protection of service " + e.Service,
				Verdict: outcomeVerdicts[o], Packets: n.Packets, Bytes: n.Bytes, Line: e.Line, Beside: true})
		}
	}
}

// proxied reports what SYNPROXY was given, and what was dropped beside it.
func (s *Status) proxied(e *manifest.Protection, number int, c *manifest.Counts) {
	if c.Ruleset == nil {
		return
	}
	counters, ok := c.Ruleset.Proxies[number]
	if !ok {
		return
	}
	for _, r := range []struct{ name, counter, verdict string }{
		{"synproxy", counters.Proxied, "proxied"}, {ir.AckInvalid.String(), counters.Invalid, ir.Drop.String()},
	} {
		n := c.Named[r.counter]
		s.Rules = append(s.Rules, RuleStatus{Name: e.Service + ":" + r.name, Stage: plan.StageFilter, Why: "protection of service " + e.Service,
			Verdict: r.verdict, Packets: n.Packets, Bytes: n.Bytes, Line: e.Line, Beside: true})
	}
}

// reportProtections reports how protections stand.
func (s *Status) reportProtections(g *generation.Generation) error {
	if len(g.Manifest.Protections) == 0 {
		return nil
	}
	memory, table, err := protectionStates(g)
	if err != nil {
		return err
	}
	now, states := coarse(), memory[image.ProtectionStates]
	for i, e := range g.Manifest.Protections {
		p := ProtectionStatus{
			Service: e.Service, Mode: e.Mode, Method: e.Method, Always: e.Always, Active: e.Always && !e.InKernel(),
			MSS: e.MSS, WScale: e.WScale, Options: e.Options,
		}
		if state := states[min(i*image.ProtectionStateSize, len(states)):]; !e.InKernel() && len(state) >= image.ProtectionStateSize {
			p.Flows = table
			p.Left, p.Refused = until(state, now), until(state[8:], now)
			p.Active = (e.Always || p.Left > 0) && p.Refused == 0
			if e.Always {
				p.Left = 0
			}
		}
		if p.Refused > 0 {
			s.warn("service %q: the kernel has refused connections that cookies began, so its protection rests: "+
				"apply again, which finds out what can be done", e.Service)
		}
		s.Protections = append(s.Protections, p)
	}
	return nil
}

// protectionStates maps the states of protections, and counts the connections that are remembered.
func protectionStates(g *generation.Generation) (memory map[string][]byte, t FlowTable, err error) {
	if g.Program == nil {
		return nil, t, nil
	}
	if memory, err = g.Program.Memory(image.ProtectionStates); err != nil {
		return nil, t, err
	}
	flows, err := g.Program.Flows()
	if flows != nil && err == nil {
		t.Entries, t.Capacity = flows.Len()
	}
	return memory, t, err
}

// until is how many seconds lie between now and a time in the memory of a map.
func until(at []byte, now time.Duration) float64 {
	return max(0, (time.Duration(binary.NativeEndian.Uint64(at)) - now).Seconds())
}

// coarse is the clock by which protections know the time.
func coarse() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0 // every Linux has it
	}
	return time.Duration(now.Nano())
}

// LimitStatus is a limit of a rule, and how its table stands.
type LimitStatus struct {
	Name      string `json:"name"` // the rule's, with a number behind it where that has several: dns:limit/2
	Rule      string `json:"rule"`
	Limit     string `json:"limit"`              // as a policy has it
	Debts     int    `json:"debts"`              // prefixes that have used a part of what they may send
	Capacity  int    `json:"capacity,omitempty"` // in such prefixes; absent: the limit is one for all
	Evictions uint64 `json:"evictions"`          // prefixes that were forgotten for lack of space
}

// limits reports how the tables of limits in XDP stand. What netfilter keeps of its own is not counted.
func (s *Status) limits(g *generation.Generation) error {
	if g.Program == nil || len(g.Manifest.Limits) == 0 {
		return nil
	}
	tables, err := g.Program.Limits()
	if err != nil {
		return err
	}
	names := limitNames(g.Manifest.Limits)
	for i, t := range tables[:min(len(tables), len(g.Manifest.Limits))] {
		e := g.Manifest.Limits[i]
		if e.Unused || strings.HasPrefix(e.Rule, "essential:") && t.Evictions == 0 {
			continue // built-in limits are known by the packets that they drop
		}
		if !e.Each {
			t.Capacity = 0
		}
		s.Limits = append(s.Limits, LimitStatus{names[i], e.Rule, e.Text, t.Debts, t.Capacity, t.Evictions})
		if t.Debts*10 >= t.Capacity*9 && e.Each {
			s.warn("the limit %q, %s, is %d%% full: a flood from many sources makes it forget some of them; give it a larger max",
				names[i], e.Text, t.Debts*100/t.Capacity)
		}
	}
	return nil
}

// limitNames names limits, so that those of one rule differ.
func limitNames(limits []manifest.Limit) (names []string) {
	all, before := map[string]int{}, map[string]int{}
	for _, l := range limits {
		if !l.Unused {
			all[l.Rule]++
		}
	}
	for _, l := range limits {
		name := l.Rule
		if all[l.Rule] > 1 {
			name = fmt.Sprintf("%s/%d", l.Rule, before[l.Rule]+1)
		}
		if !l.Unused {
			before[l.Rule]++
		}
		names = append(names, name)
	}
	return names
}
