// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"hash/fnv"
	"net/netip"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Numbers of labels of zones, and of domains to which responses without a SOA are charged, as in bpf/zone.h and bpf/response.h.
const (
	leastZone    = 2
	mostZone     = 20
	mostServFail = 5
)

// Zones defines what the program learns about names and zones from outgoing responses. It is exact, and has memory for every name. It is for tests,
// not part of a firewall.
//
//   - A response with an answer, or a referral, records its name, unless new names in the domain of its last two labels exceed Names.New.
//   - A negative response is charged to its zone, if the name is not recorded and the client is not verified: NXDOMAIN, SERVFAIL, or NODATA with a
//     SOA for another type than AAAA and HTTPS. The zone is flooded when Names.Flooded is exceeded.
//   - A query that gets a truncated response because of its name is charged to the zone, too. The zone is flooded as long as Names.GoOn is exceeded.
//   - Names of up to two labels do not count.
type Zones struct {
	limiter  *Limiter
	names    *Names
	answered map[string]time.Duration // the time at which a name was last answered
	flooded  map[string]time.Duration // the time until which a zone is flooded

	// Above decides whether a response without a SOA is also charged to the parent domain. In the BPF program, this is random: one in two is.
	Above func() bool
}

// NewZones returns Zones without any recorded responses.
func NewZones(p *Program, names *Names) *Zones {
	return &Zones{
		limiter: NewLimiter(p), names: names, answered: map[string]time.Duration{}, flooded: map[string]time.Duration{},
		Above: func() bool { return false },
	}
}

// domain returns the last labels of a name. The parameter labels is their number.
func domain(name string, labels int) string {
	for n := strings.Count(name, ".") + 1; n > labels; n-- {
		_, name, _ = strings.Cut(name, ".")
	}
	return name
}

// over charges a domain to a limit. It reports whether the domain exceeds the limit.
func (z *Zones) over(limit int, name string, at time.Duration) bool {
	h := fnv.New128a()
	h.Write([]byte(name))
	return z.limiter.Over(limit, &packet.Packet{Src: netip.AddrFrom16([16]byte(h.Sum(nil)))}, at)
}

// Answered reports whether a name has been answered and is still remembered.
func (z *Zones) Answered(name string, at time.Duration) bool {
	last, ok := z.answered[name]
	return ok && at-last < AnsweredLife
}

// Learn processes an outgoing response. verified tells whether its client is verified.
func (z *Zones) Learn(r packet.Response, verified bool, at time.Duration) {
	name := r.Name()
	known := z.Answered(name, at)
	switch {
	case r.Labels <= leastZone:
	case r.RCode == packet.DNSNoError && (r.Answers > 0 || r.Referral):
		if known || !z.over(z.names.New, domain(name, leastZone), at) {
			z.answered[name] = at
		}
	case !negative(r) || known || verified:
	case r.ZoneDepth != packet.NoZone && r.Answers == 0:
		if depth := min(r.ZoneDepth, mostZone); depth >= leastZone && depth < r.Labels {
			z.charge(domain(name, depth), at)
		}
	case r.RCode != packet.DNSNoError:
		for depth := min(r.Labels-1, mostServFail); depth >= leastZone; depth-- {
			if z.charge(domain(name, depth), at) || !z.Above() {
				return
			}
		}
	}
}

// negative reports whether a response without an answer is of a kind that may be charged to a zone.
func negative(r packet.Response) bool {
	if r.RCode == packet.DNSNoError {
		return r.Type != packet.DNSTypeAAAA && r.Type != packet.DNSTypeHTTPS
	}
	return r.RCode == packet.DNSServFail || r.RCode == packet.DNSNXDomain
}

// charge charges a negative response to a zone. It reports whether the zone is flooded as a result.
func (z *Zones) charge(zone string, at time.Duration) bool {
	if !z.over(z.names.Flooded, zone, at) {
		return false
	}
	z.flooded[zone] = at + ZoneTime
	return true
}

// Unanswered implements World.Unanswered. It charges nothing.
func (z *Zones) Unanswered(pkt *packet.Packet, at time.Duration) bool {
	name := pkt.Query.Name()
	labels := strings.Count(name, ".") + 1
	for depth := leastZone; depth < labels && depth <= mostZone; depth++ {
		if z.flooded[domain(name, depth)] > at {
			return !z.Answered(name, at)
		}
	}
	return false
}

// GoesOn processes a query for which Unanswered is true. It charges the query to the narrowest flooded zone of the name, if the end of that flood may
// have to be extended.
func (z *Zones) GoesOn(pkt *packet.Packet, at time.Duration) {
	const renew = time.Second
	name := pkt.Query.Name()
	for depth := min(strings.Count(name, "."), mostZone); depth >= leastZone; depth-- {
		zone := domain(name, depth)
		until := z.flooded[zone]
		if until <= at {
			continue
		}
		if until <= at+ZoneTime-renew && z.over(z.names.GoOn, zone, at) {
			z.flooded[zone] = at + ZoneTime
		}
		return
	}
}
