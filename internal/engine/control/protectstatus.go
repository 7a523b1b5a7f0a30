// SPDX-License-Identifier: Apache-2.0

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

// ProtectionStatus is the status of the protection of a service.
type ProtectionStatus struct {
	Service string    `json:"service"`
	Mode    string    `json:"mode"`              // host or router
	Method  string    `json:"method"`            // host, listener or synproxy; kernel: XDP, or netfilter, only limits SYNs
	Always  bool      `json:"always,omitempty"`  // every SYN is answered with a cookie
	Active  bool      `json:"active"`            // whether SYNs are answered with cookies now
	Left    float64   `json:"left,omitempty"`    // seconds until SYNs are no longer answered with cookies, if the flood ends now
	Refused float64   `json:"refused,omitempty"` // seconds for which it pauses: the kernel accepted no connection, or it is about to end
	Flows   FlowTable `json:"flows"`
	MSS     [2]uint16 `json:"mss"`    // announced, in IPv4 and IPv6
	WScale  int       `json:"wscale"` // announced; -1: not offered
	Options []string  `json:"options"`
}

// FlowTable is the table of remembered connections. All protected services share it.
type FlowTable struct {
	Entries  int `json:"entries"`
	Capacity int `json:"capacity"`
}

// outcomeVerdicts are the verdicts that status shows for the outcomes.
var outcomeVerdicts = [ir.NumOutcomes]string{
	ir.SynAnswered: "sent", ir.SynLimited: "drop", ir.AckProved: "pass", ir.AckInvalid: "drop", ir.AckAsked: "asked",
	ir.SynAuthenticated: "pass",
}

// outcomes adds the outcomes of packets of protected services to s, in the form of rules.
func (s *Status) outcomes(m *manifest.Manifest, c *manifest.Counts) {
	for i := range m.Protections {
		e := &m.Protections[i]
		s.proxied(e, i, c)
		if !c.Program || e.InKernel() {
			continue
		}
		for o := range ir.NumOutcomes {
			if e.Slots[o] == 0 { // the version that loaded the program does not count this outcome
				continue
			}
			n := c.Slot(e.Slots[o])
			s.Rules = append(s.Rules, RuleStatus{Name: e.Name(o), Stage: plan.StageXDP, Why: "protection of service " + e.Service,
				Verdict: outcomeVerdicts[o], Packets: n.Packets, Bytes: n.Bytes, Line: e.Line, Beside: true})
		}
	}
}

// proxied adds to s the packets that SYNPROXY received, and the packets that were dropped as invalid.
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

// reportProtections adds the status of the protections to s.
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

// protectionStates maps the states of protections into memory, and counts the remembered connections.
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

// until returns the seconds from now to a time that is stored in the memory of a map. It returns 0 for a past time.
func until(at []byte, now time.Duration) float64 {
	return max(0, (time.Duration(binary.NativeEndian.Uint64(at)) - now).Seconds())
}

// coarse returns the present time of CLOCK_MONOTONIC_COARSE, the clock that protections use.
func coarse() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0 // cannot happen: every Linux has this clock
	}
	return time.Duration(now.Nano())
}

// LimitStatus is the status of a limit of a rule and of its table.
type LimitStatus struct {
	Name      string `json:"name"` // the rule's name, with a number if the rule has several limits: dns:limit/2
	Rule      string `json:"rule"`
	Limit     string `json:"limit"`              // as it is written in a policy
	Debts     int    `json:"debts"`              // number of prefixes that have used up a part of their limit
	Capacity  int    `json:"capacity,omitempty"` // number of prefixes that the table can hold; absent: one limit for all packets
	Evictions uint64 `json:"evictions"`          // number of prefixes that were removed for lack of space
}

// limits adds the tables of limits in XDP to s. Tables in netfilter are not included.
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
			continue // built-in limits are reported only if they have dropped packets
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

// limitNames returns a distinct name for each limit.
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
