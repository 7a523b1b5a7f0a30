// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/iptables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// unavailableError says that this host does not support a target at all.
type unavailableError struct{ error }

func (e *unavailableError) Unwrap() error { return e.error }

// unavailable reports whether another target may work although this one failed, because the cause is the host and not the policy.
func unavailable(err error) bool {
	var refused *datapath.AttachError
	var none *unavailableError
	var unprotected *manifest.UnavailableError
	if !errors.As(err, &refused) {
		return errors.As(err, &none) || errors.As(err, &unprotected)
	}
	_, err = netlink.LinkByName(refused.Device)
	return err == nil // a missing device prevents every target
}

// withoutNft returns the error that nft is not installed, or nil if err has another cause. XDP also needs nft, for rules in netfilter.
func withoutNft(err error) *netfilter.MissingError {
	var missing *netfilter.MissingError
	if errors.As(err, &missing) && missing.Tool == "nft" {
		return missing
	}
	return nil
}

// incapable reports whether the error says that a target does not support the policy.
func incapable(err error) bool {
	var place *plan.StageError
	var left *LeftError
	var form *iptables.Error
	return errors.As(err, &place) || errors.As(err, &left) || errors.As(err, &form)
}

// choose applies the policy to the requested target. If no target is requested, it takes the first one that this host supports. A target other than
// XDP must also support the policy.
func (in Instance) choose(ctx context.Context, state *datapath.State, c *Compiled, o ApplyOptions) (*Applied, error) {
	if o.Target != "" && o.Target != TargetAuto {
		return in.applyTo(ctx, state, c, o, o.Target, "")
	}
	if o.Mode != "" && o.Mode != datapath.Auto {
		return in.applyTo(ctx, state, c, o, plan.TargetXDP, "the one that has a mode")
	}
	var not []string
	var errs []error
	for _, t := range []plan.Target{plan.TargetXDP, plan.TargetNftables, plan.TargetIptables} {
		choice := "the first choice"
		if not != nil {
			choice = strings.Join(not, "; ")
		}
		applied, err := in.applyTo(ctx, state, c, o, t, choice)
		if err == nil || !unavailable(err) && (not == nil || !incapable(err)) {
			if not != nil && err == nil {
				applied.Notes = append(refusals(applied.Target, c, o, errors.Join(errs...)), applied.Notes...)
			}
			if missing := withoutNft(errors.Join(errs...)); missing != nil && err == nil {
				applied.Notes = append(applied.Notes, fmt.Sprintf("target %s, %s; %s", t, not[0], missing.Hint()))
			}
			return applied, err
		}
		not, errs = append(not, fmt.Sprintf("not %s: %v", t, err)), append(errs, fmt.Errorf("%s: %w", t, err))
	}
	err, remedy := errors.Join(errs...), "make XDP possible on the devices of the policy, or take out of it what only XDP can do"
	if missing := withoutNft(err); missing != nil {
		remedy = missing.Hint()
	}
	return nil, wording.WithHint(err, remedy)
}

// refusals returns notes on devices that do not support XDP, with the remedy, if such a device is why the policy has another target. A policy has one
// target for all devices.
func refusals(t plan.Target, c *Compiled, o ApplyOptions, cause error) (notes []string) {
	var first *datapath.AttachError
	if !errors.As(cause, &first) {
		return nil
	}
	devices := o.Devices
	if devices == nil {
		devices = c.Devices()
	}
	for _, d := range devices {
		refused := datapath.Refused(d)
		if refused == nil && d == first.Device {
			refused = first
		}
		if refused != nil {
			notes = append(notes, fmt.Sprintf("device %s keeps all devices from XDP, so the target is %s: %s; %s", d, t, refused.Cause, refused.Remedy))
		}
	}
	return notes
}

// applyTo applies the policy to one target.
func (in Instance) applyTo(ctx context.Context, state *datapath.State, c *Compiled, o ApplyOptions, t plan.Target, choice string) (*Applied, error) {
	o.Mode = cmp.Or(o.Mode, o.Kept, datapath.Auto)
	return in.applying(state, transaction{compiled: c, options: o, target: t, choice: choice}).apply(ctx)
}
