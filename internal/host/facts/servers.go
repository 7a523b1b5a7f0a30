// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/policy"
)

// mostServers is the largest number of servers that are probed for a service. mostPorts is the largest number of ports that are probed on each
// server.
const (
	mostServers = policy.MaxBackends
	mostPorts   = 4
)

// Servers is the result of probing the servers of a service behind this host.
type Servers struct {
	Known  bool // whether at least one server is known
	Many   bool // whether conntrack has too many connections to search for servers
	Survey SurveyServers
}

// askServers probes the servers of a service for the options of their connections.
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

// ServersOf returns servers of a service. If no server is named, it returns servers with which clients have connections. It returns ErrTooMany when
// conntrack has too many connections to search.
func ServersOf(ports []ranges.Range, named []netip.Addr) (servers []netip.AddrPort, err error) {
	if named == nil {
		return Known(func(port uint16) bool { return Serves(ports, port) }, mostServers)
	}
	for _, port := range firstPorts(ports) { // one port of each server comes before the second port of any server
		for _, addr := range named {
			servers = append(servers, netip.AddrPortFrom(addr, port))
		}
	}
	return servers[:min(mostServers, len(servers))], nil
}

// firstPorts returns at most mostPorts ports of the ranges. The first port of each range comes before the second port of any range.
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
