package facts

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/policy"
)

// mostServers is how many servers are asked for a service at most, and mostPorts how many ports of each.
const (
	mostServers = policy.MaxBackends
	mostPorts   = 4
)

// Servers are what is known of the servers of a service behind this host.
type Servers struct {
	Known  bool // there are any
	Many   bool // there are too many connections to find the servers among them
	Survey SurveyServers
}

// askServers asks the servers of a service which options their connections have.
func askServers(ctx context.Context, ports []ranges.Range, named []netip.Addr) (s Servers, err error) {
	servers, err := ServersOf(ports, named)
	if errors.Is(err, ErrTooMany) {
		return Servers{Many: true}, nil
	}
	if err != nil {
		return s, err
	}
	return Servers{Known: len(servers) > 0, Survey: SurveyHost(ctx, servers)}, nil
}

// ServersOf are servers of a service: those that are named, or where none is some of those that clients have connections with.
// It returns backend.ErrTooMany when conntrack has more connections than are looked through.
func ServersOf(ports []ranges.Range, named []netip.Addr) (servers []netip.AddrPort, err error) {
	if named == nil {
		return Known(func(port uint16) bool { return Serves(ports, port) }, mostServers)
	}
	for _, port := range firstPorts(ports) { // each server is asked at one port before any is at a second
		for _, addr := range named {
			servers = append(servers, netip.AddrPortFrom(addr, port))
		}
	}
	return servers[:min(mostServers, len(servers))], nil
}

// firstPorts are some ports of ranges, the first of each before any second.
func firstPorts(ranges []ranges.Range) (ports []uint16) {
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
