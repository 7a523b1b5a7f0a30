// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"time"
)

// hysteresis sets stop to half of start if the policy does not set stop. It reports start and stop rates of the protection v with which cookies would
// never end.
func (p place) hysteresis(s *Syn, v *node) {
	start, stop := v.Get("start"), v.Get("stop")
	if s.Always {
		p.saysNothing(v, "when: always", "remove it, or write when: auto", "start", "stop")
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

// saysNothing reports those keys of v that have no effect beside another key.
func (p place) saysNothing(v *node, beside, remedy string, keys ...string) {
	for _, key := range keys {
		if e := v.Entry(key); e != nil {
			p.errorf(e.Pos, "%s says nothing with %s", e.Key, beside).Hint = remedy
		}
	}
}

// below reports whether the rate of a is lower than that of b.
func below(a, b *Over) bool {
	return a.Rate*uint64(b.Per/time.Second) < b.Rate*uint64(a.Per/time.Second)
}

// rateText returns a rate of packets in the policy's notation.
func rateText(o *Over) string {
	for unit, per := range rateTimes {
		if per == o.Per {
			return fmt.Sprintf("%d/%s", o.Rate, unit)
		}
	}
	return fmt.Sprintf("%d in %s", o.Rate, o.Per)
}

// MaxBackends is the largest number of servers whose TCP options Floodwall queries for one service.
const MaxBackends = 8

// synBackends reports backends of a service that may run on this host, repeated backends, and too many backends.
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
	for _, w := range synModes {
		if w.means == m {
			return w.word
		}
	}
	return ""
}

// protectable reports properties of the service n that prevent its SYN protection.
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
	case s.Track == TrackNot: // a service that is exempt from conntrack runs on this host
		s.Syn.Mode = SynHost
	case s.Syn.Mode == SynHost:
		s.Track = TrackNot
	}
}

// protectedOnce reports that the service n shares a TCP port with an earlier service, if both are protected, or if one
// is tracked and the protection of the other exempts the port from conntrack.
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

// untracks reports whether the protection of a service exempts the service from conntrack. If the mode is not known yet, it returns true.
func (s *Service) untracks() bool { return s.Syn != nil && s.Syn.Mode != SynRouter }

// tcpOnly returns the ports for TCP, or for both TCP and UDP.
func tcpOnly(ports []Port) []Port {
	return slices.DeleteFunc(slices.Clone(ports), func(p Port) bool { return p.Proto == protoUDP })
}
