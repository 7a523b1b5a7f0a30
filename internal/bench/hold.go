package bench

import (
	"context"
	"errors"
	"io"

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
	in, remove, err := at.install(ctx, policy, target)
	if err == nil {
		b.owned = append(b.owned, remove)
	}
	return in, err
}

// install applies a policy at a site, where it stays until it is removed. The text is without its devices.
func (s *site) install(ctx context.Context, policy, target string) (in control.Instance, remove func() error, err error) {
	file, forget, err := tempFile("policy.yaml", func(w io.Writer) error {
		_, err := io.WriteString(w, s.devices()+policy)
		return err
	})
	if err != nil {
		return in, nil, err
	}
	defer forget()
	p, err := newPins()
	if err != nil {
		return in, nil, err
	}
	in = control.Instance{Dir: p.dir("floodwall")}
	err = s.server.Do(func() error {
		compiled, err := control.Compile(file)
		if err != nil {
			return err
		}
		_, err = in.Apply(ctx, compiled, targetOptions(target))
		return err
	})
	if err != nil {
		_ = p.close() // the first error is the one that says something
		return in, nil, err
	}
	return in, func() error {
		unloaded := s.server.Do(func() error { return in.Unload(context.WithoutCancel(ctx)) })
		return errors.Join(unloaded, p.close())
	}, nil
}

// targetOptions has a policy be compiled to a target: auto, or one of costTargets.
func targetOptions(target string) control.ApplyOptions {
	return map[string]control.ApplyOptions{
		"auto": {}, "xdp": {Target: "xdp"}, "nftables": {Target: "nftables"}, "iptables": {Target: "iptables"},
	}[target]
}
