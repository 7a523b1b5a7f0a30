package policy

import (
	"fmt"
	"slices"
	"time"
)

// hysteresis reports rates of a protection, which v is, that would never end, and works in half of start as stop.
func (p place) hysteresis(s *Syn, v *node) {
	start, stop := v.Get("start"), v.Get("stop")
	if s.Always {
		for _, e := range []*pair{v.Entry("start"), v.Entry("stop")} {
			if e != nil {
				p.errorf(e.Pos, "%s says nothing with when: always", e.Key).Hint = "remove it, or write when: auto"
			}
		}
		return
	}
	if start != nil && stop == nil {
		s.Stop = half(*s.Start)
	}
	if s.Stop.Rate == 0 {
		p.errorf(start.Pos, "start is one SYN in a time, %s, and stop must be below it", rateText(s.Start)).Hint =
			"write it for a longer time, as in 60/min"
		return
	}
	if stop != nil && !below(s.Stop, s.Start) {
		p.errorf(stop.Pos, "stop must be below start, %s", rateText(s.Start)).Hint =
			"cookies begin above start, and end when there is less than stop: write " + rateText(half(*s.Start))
	}
}

// below reports whether a is the lower rate.
func below(a, b *Over) bool {
	return a.Rate*uint64(b.Per/time.Second) < b.Rate*uint64(a.Per/time.Second)
}

// rateText writes a rate of packets as the policy has it.
func rateText(o *Over) string {
	for unit, per := range rateTimes {
		if per == o.Per {
			return fmt.Sprintf("%d/%s", o.Rate, unit)
		}
	}
	return fmt.Sprintf("%d in %s", o.Rate, o.Per)
}

// MaxBackends is the most servers of a service that are asked for their options.
const MaxBackends = 8

// synBackends reports backends of a service that may be on this host, named twice, or more than are asked.
func (p place) synBackends(s *Syn, v *node) {
	if s.Backends != nil && s.Mode != SynRouter {
		p.errorf(v.Entry("backends").Pos, "backends are servers behind this host, and the mode is %s", synModeName(s.Mode)).Hint =
			"write mode: router, or remove backends"
	}
	for i, b := range s.Backends {
		if slices.Contains(s.Backends[:i], b) {
			p.errorf(v.Entry("backends").Pos, "backends names %s twice", b).Hint = "remove one of them"
		}
	}
	if len(s.Backends) > MaxBackends {
		p.errorf(v.Entry("backends").Pos, "backends names %d servers, and at most %d are asked", len(s.Backends), MaxBackends).Hint =
			"name the ones whose options differ most: what all named ones can do is announced"
	}
}

func synModeName(m SynMode) string {
	for name, mode := range synModes {
		if mode == m {
			return name
		}
	}
	return ""
}

// protectable reports what of a service, which n is, keeps it from being protected.
func (p place) protectable(s *Service, n *node) {
	if s.Syn == nil || s.Port == nil {
		return
	}
	v := n.Get("syn")
	if !hasTCP(s.Port) {
		p.errorf(v.Pos, "syn needs a port of TCP").Hint = fmt.Sprintf("write port: tcp/%d, or remove syn", s.Port[0].First)
	}
	switch {
	case s.Track == Track && s.Syn.Mode != SynRouter:
		p.errorf(v.Pos, "syn keeps the connections of a service on this host out of conntrack, and track is true").Hint =
			"remove track, or write syn: {mode: router} for a service behind this host"
	case s.Track == TrackNot && s.Syn.Mode == SynRouter:
		p.errorf(v.Pos, "syn in mode router needs conntrack, and track is false").Hint =
			"remove track, or write syn: {mode: host} for a service on this host"
	case s.Track == TrackNot: // who keeps conntrack away from a service has it on this host
		s.Syn.Mode = SynHost
	case s.Syn.Mode == SynHost:
		s.Track = TrackNot
	}
}

// protectedOnce reports that a service, which n is, shares a port of TCP with an earlier one that is protected, too, or
// that is tracked where protection is to keep conntrack away.
func (p place) protectedOnce(earlier []Service, s Service, n *node) {
	for _, e := range earlier {
		port, shared := sharedPort(tcpOnly(s.Port), tcpOnly(e.Port))
		switch {
		case !shared:
		case s.Syn != nil && e.Syn != nil:
			p.errorf(n.Get("syn").Pos, "syn is the second for port %s, which line %d protects", port, e.Pos.Line).Hint =
				"protect one service of the port; rules with from before it can treat some clients otherwise"
			return
		case s.untracks() && e.Track == Track && n.Get("track") == nil:
			p.errorf(n.Get("syn").Pos, "syn keeps port %s out of conntrack, and line %d tracks it", port, e.Pos.Line).Hint =
				"remove track there, or write syn: {mode: router} for a service behind this host"
			return
		case e.untracks() && s.Track == Track:
			p.errorf(n.Get("track").Pos, "track is true for port %s, which syn in line %d keeps out of conntrack", port, e.Pos.Line).Hint =
				"remove it, or write syn: {mode: router} there for a service behind this host"
			return
		}
	}
}

// untracks reports whether protection keeps conntrack away from the service, or may turn out to.
func (s *Service) untracks() bool { return s.Syn != nil && s.Syn.Mode != SynRouter }

// tcpOnly are the ports that are of TCP, or of TCP and UDP.
func tcpOnly(ports []Port) []Port {
	return slices.DeleteFunc(slices.Clone(ports), func(p Port) bool { return p.Proto == protoUDP })
}
