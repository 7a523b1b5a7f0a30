package rig

import (
	"context"
	"errors"
	"io"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/policy"
)

// Hold applies a policy at a site. The policy is in force until the builder is closed. The text has no devices.
func (b *Builder) Hold(ctx context.Context, at *Site, policy string, o control.ApplyOptions) (*Held, error) {
	h, err := at.Install(ctx, policy, o)
	if err == nil {
		b.Owned = append(b.Owned, h.Remove)
	}
	return h, err
}

// Held is a policy that is in force at a site until it is removed.
type Held struct {
	control.Instance
	site *Site
	Pins *Pins
}

// Install applies a policy. The text has no devices.
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
		_ = p.close() // the first error is the useful one
		return nil, err
	}
	return h, nil
}

// Remove removes the policy.
func (h *Held) Remove() error {
	unloaded := h.site.Server.Do(func() error { return h.Unload(context.Background()) })
	return errors.Join(unloaded, h.Pins.close())
}

// Pinned is the name of an instance in a file system of its own.
const Pinned = "floodwall"

// TargetOptions returns options that put a policy to a place. It is a target (auto, xdp, nftables or iptables), or a mode of target xdp (native, tc).
// Native is for programs that are opened: xdp alone takes mode tc where the policy's answers would be lost.
func TargetOptions(target string) control.ApplyOptions {
	return map[string]control.ApplyOptions{
		"auto": {}, "xdp": {Target: "xdp"}, "native": {Target: "xdp", Mode: datapath.Native}, "tc": {Target: "xdp", Mode: datapath.TC},
		"nftables": {Target: "nftables"}, "iptables": {Target: "iptables"},
	}[target]
}
