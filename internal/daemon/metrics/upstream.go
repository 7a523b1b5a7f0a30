// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"strconv"
)

var (
	bgpRunning       = NewGauge("floodwall_bgp_running", "1 while `floodwall-bgp run` answers the daemon.")
	bgpSession       = NewGauge("floodwall_bgp_session_up", "1 while the session with a router upstream is established.", "router")
	bgpAnnouncements = NewGauge("floodwall_bgp_announcements", "Announcements that routers have at present.", "kind")
	bgpReceived      = NewGauge("floodwall_bgp_received_routes", "FlowSpec routes that routers sent, whether or not they are obeyed.")
	bgpLadder        = NewCounter("floodwall_bgp_ladder_total",
		"Steps of the daemon against attacks since it started: that went out (announced), wait as they ended a short time ago (dampened), found an announcement that stays (held), are not allowed or do not help (refused), and would have gone out (dry-run).", "result")
	flowspecRoutes = NewGauge("floodwall_flowspec_routes",
		"FlowSpec routes that routers sent: that are obeyed (obeyed), and that are not: they cannot be read (malformed), ask for something that Floodwall cannot do (unsupported), are not for own prefixes or not from who may send them (foreign), are too many (excess).", "state")
	flowspecRules   = NewGauge("floodwall_flowspec_rules", "Rules in force for received FlowSpec routes.")
	flowspecChanges = NewCounter("floodwall_flowspec_changes_total", "Changes of the rules in force for received FlowSpec routes since the daemon started.")
	bgpTotal        = NewCounter("floodwall_bgp_announcements_total",
		"Announcements since `floodwall-bgp run` started: that went out (announced), that ended (withdrawn), and those that were wrong (refused).", "result")
)

// UpstreamFigures are the values for the sessions with routers upstream.
type UpstreamFigures struct {
	Running                       bool
	Sessions                      []bool // whether each session is established, in the policy's order
	Kinds                         map[string]int
	Received                      int
	Announced, Withdrawn, Refused uint64
	Ladder                        map[string]uint64 // number of steps of the daemon, by result; nil: the policy has no `auto`
	FlowSpec                      *FlowSpecFigures  // nil: the policy has no `receive`
}

// FlowSpecFigures are the values for received routes.
type FlowSpecFigures struct {
	Routes  map[string]int // number of routes by state
	Rules   int            // in force
	Changes uint64
}

// Upstream returns the metrics of the upstream routers. read returns nil while the policy has no such router; then there are no metrics. The label of
// a router is its number in the policy, because labels must not contain addresses.
func Upstream(read func(context.Context) *UpstreamFigures) Part {
	return Part{Families: []*Family{bgpRunning, bgpSession, bgpAnnouncements, bgpReceived, bgpTotal, bgpLadder, flowspecRoutes, flowspecRules, flowspecChanges}, Read: func(ctx context.Context, add Add) error {
		f := read(ctx)
		if f == nil {
			return nil
		}
		for result, n := range f.Ladder {
			add(bgpLadder, float64(n), result)
		}
		if r := f.FlowSpec; r != nil {
			for state, n := range r.Routes {
				add(flowspecRoutes, float64(n), state)
			}
			add(flowspecRules, float64(r.Rules))
			add(flowspecChanges, float64(r.Changes))
		}
		add(bgpRunning, truth(f.Running))
		if !f.Running {
			return nil
		}
		for i, up := range f.Sessions {
			add(bgpSession, truth(up), strconv.Itoa(i+1))
		}
		for kind, n := range f.Kinds {
			add(bgpAnnouncements, float64(n), kind)
		}
		add(bgpReceived, float64(f.Received))
		add(bgpTotal, float64(f.Announced), "announced")
		add(bgpTotal, float64(f.Withdrawn), "withdrawn")
		add(bgpTotal, float64(f.Refused), "refused")
		return nil
	}}
}
