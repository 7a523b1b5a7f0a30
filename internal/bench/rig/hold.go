package bench

import (
	"context"
	"errors"
	"io"

	"github.com/floodwall/floodwall/internal/control"
)

// hold applies a policy at a site, where it stays until the builder is closed. The text is without its devices.
func (b *builder) hold(ctx context.Context, at *site, policy, target string) (control.Instance, error) {
	h, err := b.holdWith(ctx, at, policy, targetOptions(target))
	if err != nil {
		return control.Instance{}, err
	}
	return h.Instance, nil
}

// holdWith is hold with options of its own.
func (b *builder) holdWith(ctx context.Context, at *site, policy string, o control.ApplyOptions) (*held, error) {
	h, err := at.install(ctx, policy, o)
	if err == nil {
		b.owned = append(b.owned, h.remove)
	}
	return h, err
}

// held is a policy that stays at a site until it is removed.
type held struct {
	control.Instance
	site *site
	pins *pins
}

// install applies a policy. The text is without its devices.
func (s *site) install(ctx context.Context, policy string, o control.ApplyOptions) (*held, error) {
	file, forget, err := tempFile("policy.yaml", func(w io.Writer) error {
		_, err := io.WriteString(w, s.devices()+policy)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer forget()
	p, err := newPins()
	if err != nil {
		return nil, err
	}
	h := &held{control.Instance{Dir: p.dir(pinned)}, s, p}
	err = s.server.Do(func() error {
		compiled, err := control.Compile(file)
		if err != nil {
			return err
		}
		_, err = h.Apply(ctx, compiled, o)
		return err
	})
	if err != nil {
		_ = p.close() // the first error is the one that says something
		return nil, err
	}
	return h, nil
}

func (h *held) remove() error {
	unloaded := h.site.server.Do(func() error { return h.Unload(context.Background()) })
	return errors.Join(unloaded, h.pins.close())
}

// pinned is the name of an instance in a file system of its own.
const pinned = "floodwall"

// targetOptions has a policy be compiled to a target: auto, or one of costTargets.
func targetOptions(target string) control.ApplyOptions {
	return map[string]control.ApplyOptions{
		"auto": {}, "xdp": {Target: "xdp"}, "nftables": {Target: "nftables"}, "iptables": {Target: "iptables"},
	}[target]
}
