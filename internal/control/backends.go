package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/backend"
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
// servers that answer do. Offering an option that a server lacks would break its connections. note says what
// is announced when not all of them have answered, "" when they have.
func fromBackends(ctx context.Context, s *ir.Protection, f *ir.Handshake) (note string, err error) {
	servers, err := backends(s)
	unknown := errNoServer
	if errors.Is(err, backend.ErrTooMany) {
		unknown, err = err, nil
	}
	if err != nil {
		return "", err
	}
	survey := backend.Look(ctx, servers)
	announce(s, f, survey)
	if len(servers) == 0 {
		return fmt.Sprintf("service %q: SYN-ACKs announce what is usual (%s): %v", s.Service, announced(f), unknown), nil
	}
	return silentNote(s.Service, f, survey), nil
}

// silentNote says in one line who has not answered and what that means, "" when all have.
func silentNote(service string, f *ir.Handshake, s backend.Survey) string {
	if s.Silent == nil {
		return ""
	}
	var names []string
	for _, server := range s.Silent {
		names = append(names, server.String())
	}
	whose := "what the others have"
	if s.Answered == nil {
		whose = "what is usual"
	}
	return fmt.Sprintf("service %q: SYN-ACKs announce %s (%s), as %s did not answer: apply again when they do, or `floodwall doctor` compares them",
		service, whose, announced(f), strings.Join(names, ", "))
}

// announced is what SYN-ACKs announce, in words.
func announced(f *ir.Handshake) string {
	words := []string{fmt.Sprintf("MSS %d in IPv4 and %d in IPv6", f.MSS[0], f.MSS[1])}
	for bit, name := range optionNames {
		switch {
		case f.Options>>bit&1 == 0:
		case ir.TCPOptions(1<<bit) == ir.WindowScaling:
			words = append(words, fmt.Sprintf("%s %d", name, f.WScale))
		default:
			words = append(words, name)
		}
	}
	return strings.Join(words, ", ")
}

// announce takes what servers do into what is announced.
func announce(s *ir.Protection, f *ir.Handshake, all backend.Survey) {
	f.MSS, f.WScale, f.Options = usualMSS, usualWScale, ir.WindowScaling|ir.SACK|ir.Timestamps
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
	if s.WScale >= 0 && f.Options&ir.WindowScaling != 0 {
		f.WScale = uint8(s.WScale)
	}
}

func optionsOf(all backend.Survey) (o ir.TCPOptions) {
	for option, does := range map[ir.TCPOptions]bool{
		ir.WindowScaling: all.WScale >= 0, ir.SACK: all.SACK, ir.Timestamps: all.Timestamps, ir.ECN: all.ECN,
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
