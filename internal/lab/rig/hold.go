package rig

import (
	"context"
	"errors"
	"io"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/policy"
)

// Hold applies a policy at a site, where it stays until the builder is closed. The text is without its devices.
func (b *Builder) Hold(ctx context.Context, at *Site, policy, target string) (control.Instance, error) {
	h, err := b.HoldWith(ctx, at, policy, TargetOptions(target))
	if err != nil {
		return control.Instance{}, err
	}
	return h.Instance, nil
}

// HoldWith is hold with options of its own.
func (b *Builder) HoldWith(ctx context.Context, at *Site, policy string, o control.ApplyOptions) (*Held, error) {
	h, err := at.Install(ctx, policy, o)
	if err == nil {
		b.Owned = append(b.Owned, h.Remove)
	}
	return h, err
}

// Held is a policy that stays at a site until it is removed.
type Held struct {
	control.Instance
	site *Site
	Pins *Pins
}

// Install applies a policy. The text is without its devices.
func (s *Site) Install(ctx context.Context, text string, o control.ApplyOptions) (*Held, error) {
	file, forget, err := TempFile("policy.yaml", func(w io.Writer) error {
		_, err := io.WriteString(w, s.devices()+text)
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
	h := &Held{control.Instance{Dir: p.dir(Pinned)}, s, p}
	err = s.Server.Do(func() error {
		read, err := policy.Read(file)
		if err != nil {
			return err
		}
		_, err = h.Apply(ctx, read, o)
		return err
	})
	if err != nil {
		_ = p.close() // the first error is the one that says something
		return nil, err
	}
	return h, nil
}

// Remove takes the policy away.
func (h *Held) Remove() error {
	unloaded := h.site.Server.Do(func() error { return h.Unload(context.Background()) })
	return errors.Join(unloaded, h.Pins.close())
}

// Pinned is the name of an instance in a file system of its own.
const Pinned = "floodwall"

// TargetOptions has a policy be compiled to a target: auto, xdp, nftables or iptables.
func TargetOptions(target string) control.ApplyOptions {
	return map[string]control.ApplyOptions{
		"auto": {}, "xdp": {Target: "xdp"}, "nftables": {Target: "nftables"}, "iptables": {Target: "iptables"},
	}[target]
}
