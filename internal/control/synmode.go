package control

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/policy"
)

// settled is a policy in which it is decided of each protected service where it lives, by where for those that leave it
// open. Those on this host are kept out of conntrack unless they say how they are tracked.
func settled(p *policy.Policy, where func(*policy.Service) policy.SynMode) *policy.Policy {
	out := *p
	out.Services = slices.Clone(p.Services)
	for i := range out.Services {
		s := &out.Services[i]
		if s.Syn == nil || s.Syn.Mode != policy.SynModeAuto {
			continue
		}
		syn := *s.Syn
		s.Syn, syn.Mode = &syn, where(s)
		if syn.Mode == policy.SynHost && s.Track == policy.TrackAsIs {
			s.Track = policy.TrackNot
		}
	}
	return &out
}

// onHost says that services live on this host, as is assumed where no host is looked at.
func onHost(*policy.Service) policy.SynMode { return policy.SynHost }

// here is the policy compiled for this host, and notes on where its protected services are.
func (c *Compiled) here() (*Compiled, []string, error) {
	open := func(s policy.Service) bool { return s.Syn != nil && s.Syn.Mode == policy.SynModeAuto }
	if !slices.ContainsFunc(c.Policy.Services, open) {
		return c, nil, nil
	}
	found, err := listeners()
	if err != nil {
		return nil, nil, err
	}
	forwards := slices.Equal(sysctl("ipv4/ip_forward", 0), []int{1}) || slices.Equal(sysctl("ipv6/conf/all/forwarding", 0), []int{1})
	var notes []string
	behind := false
	p := settled(c.Policy, func(s *policy.Service) policy.SynMode {
		mode, why := synMode(s, found, forwards)
		notes = append(notes, fmt.Sprintf("service %q is protected as %s", s.Name, why))
		behind = behind || mode == policy.SynRouter
		return mode
	})
	if !behind {
		return c, notes, nil // that is how it was compiled
	}
	compiled, err := compilePolicy(c.Policy, p)
	return compiled, notes, err
}

// synMode decides where a service lives, and says why.
func synMode(s *policy.Service, found []listener, forwards bool) (policy.SynMode, string) {
	for _, l := range found {
		for _, p := range s.Port {
			if p.Proto != unix.IPPROTO_UDP && p.First <= l.port && l.port <= p.Last {
				return policy.SynHost, fmt.Sprintf("one of this host, where a socket listens on tcp/%d", l.port)
			}
		}
	}
	if forwards {
		return policy.SynRouter, "one behind this host, which forwards and where nothing listens on its ports; `mode: host` says otherwise"
	}
	return policy.SynHost, "one of this host, which does not forward, though nothing listens on its ports now"
}
