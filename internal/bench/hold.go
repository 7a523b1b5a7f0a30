package bench

import (
	"context"
	"os"
	"path/filepath"

	"github.com/floodwall/floodwall/internal/control"
)

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

// hold applies a policy at a site, where it stays until the builder is closed. The text is without its devices.
func (b *builder) hold(ctx context.Context, at *site, policy, target string) (in control.Instance, err error) {
	in, _, err = b.holdWith(ctx, at, policy, targetOptions(target))
	return in, err
}

// holdWith is hold with these options. It also returns where the instance is pinned.
func (b *builder) holdWith(ctx context.Context, at *site, policy string, o control.ApplyOptions) (in control.Instance, p *pins, err error) {
	dir, err := os.MkdirTemp("", "floodwall-bench-")
	if err != nil {
		return in, nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(at.devices()+policy), 0o600); err != nil {
		return in, nil, err
	}
	if p, err = newPins(); err != nil {
		return in, nil, err
	}
	in = control.Instance{Dir: p.dir(pinned)}
	err = at.server.Do(func() error {
		compiled, err := control.Compile(file)
		if err != nil {
			return err
		}
		_, err = in.Apply(ctx, compiled, o)
		return err
	})
	if err != nil {
		_ = p.close() // the first error is the one that says something
		return in, nil, err
	}
	b.owned = append(b.owned, p.close, func() error {
		return at.server.Do(func() error { return in.Unload(context.WithoutCancel(ctx)) })
	})
	return in, p, nil
}

// pinned is the name of an instance in a file system of its own.
const pinned = "floodwall"

// targetOptions has a policy be compiled to a target: auto, or one of costTargets.
func targetOptions(target string) control.ApplyOptions {
	return map[string]control.ApplyOptions{
		"auto": {}, "xdp": {Target: "xdp"}, "nftables": {Target: "nftables"}, "iptables": {Target: "iptables"},
	}[target]
}
