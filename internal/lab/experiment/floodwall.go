package experiment

import (
	"context"

	"github.com/floodwall/floodwall/internal/lab/rig"
)

// targets are what a policy is compiled to.
var targets = []string{"xdp", "nftables", "iptables"}

// addFloodwall adds a row for a policy on a target. On XDP, one that drops is measured by its program alone, which is
// attached only while it is measured; what else a policy consists of stays installed.
func (b *packetcostBuilder) addFloodwall(ctx context.Context, row *rig.Rate, c packetcostTestCase, target string) error {
	policy, remove, err := c.policy()
	if err != nil {
		return err
	}
	defer remove()
	if target != "xdp" || c.accept {
		return b.fill(ctx, row, c, func(at *rig.Site) error {
			_, err := b.Hold(ctx, at, policy, target)
			return err
		})
	}
	b.Steps.Show("applying %s", row.Label)
	a, err := b.XDP.Apply(ctx, policy, nil)
	if err != nil {
		return err
	}
	row.Subject = rig.Subject{Site: b.XDP, Program: b.Own(a.Program)}
	b.Add(row)
	return nil
}
