package control

import (
	"context"

	"github.com/floodwall/floodwall/internal/cost"
	"github.com/floodwall/floodwall/internal/netfilter"
)

// surroundings are what the cost of a placement depends on beside the packets.
type surroundings struct{ tracked, nat bool }

// survey looks at this network namespace. Conntrack looks at packets where it knows connections.
func survey(ctx context.Context) (s surroundings, err error) {
	s.tracked = sysctl("netfilter/nf_conntrack_count", 0)[0] > 0
	s.nat, err = netfilter.Translates(ctx)
	return s, err
}

func (s surroundings) fill(mix *cost.Mix) { mix.Tracked, mix.NAT = s.tracked, s.nat }
