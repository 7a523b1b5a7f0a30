package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/backend"
	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/policy"
)

// What is announced for servers of which none has answered: the MSS of Ethernet, and the window scale of a kernel with its
// usual buffers.
var (
	usualMSS    = [2]uint16{1460, 1440}
	usualWScale = uint8(7)
)

// mostBackends is how many servers are asked for a service at most, and mostPorts how many ports of each.
const (
	mostBackends = policy.MaxBackends
	mostPorts    = 4
)

// errNoServer says what to do where no server shows.
var errNoServer = errors.New("no server of it is known; say `backends`, or apply again once there are connections")

// fromBackends sets what SYN-ACKs for a service behind this host announce: what the policy says, else what all of its
// servers that answer do. Offering an option that a server lacks would break its connections. note says who has not
// answered, "" for nobody.
func fromBackends(ctx context.Context, s *ir.Protection, f *compile.Protect) (note string, err error) {
	servers, err := backends(s)
	unknown := errNoServer
	if errors.Is(err, backend.ErrTooMany) {
		unknown, err = err, nil
	}
	if err != nil {
		return "", err
	}
	survey, silent := backend.Look(ctx, servers)
	announce(s, f, survey)
	switch {
	case silent != nil:
		note = fmt.Sprintf("service %q: not all of its servers could be asked for their options: %v", s.Service, silent)
	case len(servers) == 0:
		note = fmt.Sprintf("service %q: what is usual is announced: %v", s.Service, unknown)
	}
	return note, nil
}

// announce takes what servers do into what is announced.
func announce(s *ir.Protection, f *compile.Protect, all backend.Survey) {
	f.MSS, f.WScale, f.Options = usualMSS, usualWScale, compile.WindowScaling|compile.SACK|compile.Timestamps
	if all.Answered != nil {
		f.Options = optionsOf(all)
		f.WScale = uint8(max(all.WScale, 0))
	}
	for family, mss := range all.MSS {
		if mss > 0 {
			f.MSS[family] = mss
		}
	}
	if s.MSS > 0 {
		f.MSS = [2]uint16{s.MSS, s.MSS}
	}
	if s.WScale >= 0 && f.Options&compile.WindowScaling != 0 {
		f.WScale = uint8(s.WScale)
	}
}

func optionsOf(all backend.Survey) (o compile.Options) {
	for option, does := range map[compile.Options]bool{
		compile.WindowScaling: all.WScale >= 0, compile.SACK: all.SACK, compile.Timestamps: all.Timestamps, compile.ECN: all.ECN,
	} {
		if does {
			o |= option
		}
	}
	return o
}

// backends are the servers of a service: those that the policy names, else some of those that clients have connections with.
func backends(s *ir.Protection) (servers []netip.AddrPort, err error) {
	if s.Backends == nil {
		return backend.Known(func(port uint16) bool { return serves(s.Ports, uint32(port)) }, mostBackends)
	}
	for _, port := range firstPorts(s.Ports) { // each server is asked at one port before any is at a second
		for _, addr := range s.Backends {
			servers = append(servers, netip.AddrPortFrom(addr, port))
		}
	}
	return servers[:min(mostBackends, len(servers))], nil
}

// firstPorts are some ports of ranges, the first of each before any second.
func firstPorts(ranges []ir.Range) (ports []uint16) {
	for next := uint32(0); len(ports) < mostPorts; next++ {
		before := len(ports)
		for _, r := range ranges {
			if port := r.First + next; port <= r.Last && len(ports) < mostPorts {
				ports = append(ports, uint16(port))
			}
		}
		if len(ports) == before {
			break
		}
	}
	return slices.Clip(ports)
}
