package metrics

import (
	"context"
	"strconv"
)

var (
	bgpRunning       = NewGauge("floodwall_bgp_running", "1 while `floodwall bgp run` answers the daemon.")
	bgpSession       = NewGauge("floodwall_bgp_session_up", "1 while the session with a router upstream is established.", "router")
	bgpAnnouncements = NewGauge("floodwall_bgp_announcements", "Announcements that routers have at present.", "kind")
	bgpReceived      = NewGauge("floodwall_bgp_received_routes", "FlowSpec routes that routers sent, whether or not they are obeyed.")
	bgpTotal         = NewCounter("floodwall_bgp_announcements_total",
		"Announcements since `floodwall bgp run` started: that went out (announced), that ended (withdrawn), and those that were wrong (refused).", "result")
)

// UpstreamFigures are the figures of the sessions with routers upstream.
type UpstreamFigures struct {
	Running                       bool
	Sessions                      []bool // whether each is established, in the policy's order
	Kinds                         map[string]int
	Received                      int
	Announced, Withdrawn, Refused uint64
}

// Upstream are the figures of the routers upstream. read returns nil while the policy has none: then there are none. Routers are told
// apart by their numbers in the policy, as no label has an address.
func Upstream(read func(context.Context) *UpstreamFigures) Part {
	return Part{Families: []*Family{bgpRunning, bgpSession, bgpAnnouncements, bgpReceived, bgpTotal}, Read: func(ctx context.Context, add Add) error {
		f := read(ctx)
		if f == nil {
			return nil
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
