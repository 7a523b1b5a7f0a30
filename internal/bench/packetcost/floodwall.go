package bench

import "context"

// costTargets are what a policy is compiled to.
var costTargets = []string{"xdp", "nftables", "iptables"}

// addFloodwall adds a row for a policy on a target. On XDP, one that drops is measured by its program alone, which is
// attached only while it is measured; what else a policy consists of stays installed.
func (b *costBuilder) addFloodwall(ctx context.Context, row *rate, c costCase, target string) error {
	policy, remove, err := c.policy()
	if err != nil {
		return err
	}
	defer remove()
	if target != "xdp" || c.accept {
		return b.fill(ctx, row, c, func(at *site) error {
			_, err := b.hold(ctx, at, policy, target)
			return err
		})
	}
	b.progress.show("applying %s", row.label)
	a, err := b.xdp.apply(ctx, policy, nil)
	if err != nil {
		return err
	}
	row.subject = subject{b.xdp, b.own(a.program)}
	b.add(row)
	return nil
}
