package control

import (
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

// unavailableError says that this host cannot do a target at all.
type unavailableError struct{ error }

func (e *unavailableError) Unwrap() error { return e.error }

// unavailable reports whether another target could do what this one could not: the host, not the policy, is the cause.
func unavailable(err error) bool {
	var refused *datapath.AttachError
	var none *unavailableError
	var unprotected *manifest.UnavailableError
	if !errors.As(err, &refused) {
		return errors.As(err, &none) || errors.As(err, &unprotected)
	}
	_, err = netlink.LinkByName(refused.Device)
	return err == nil // a device that there is not is no matter of the target
}

// withoutNft is the error of a target that wants nft where it is not installed; nil when that is not the cause. XDP wants it for what
// runs beside it.
func withoutNft(err error) *netfilter.MissingError {
	var missing *netfilter.MissingError
	if errors.As(err, &missing) && missing.Tool == "nft" {
		return missing
	}
	return nil
}

// incapable reports whether a target cannot do what the policy asks for.
func incapable(err error) bool {
	var place *plan.StageError
	var left *LeftError
	var form *iptables.Error
	return errors.As(err, &place) || errors.As(err, &left) || errors.As(err, &form)
}

// choose applies to the target that is asked for, or to the first that this host can do and that, if it is not XDP, can do
// the policy.
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

// refusals say of each device that does not take XDP why, and what to do, where that is the cause that a policy runs elsewhere. A policy has
// one target.
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

// applyTo applies to one target.
func (in Instance) applyTo(ctx context.Context, state *datapath.State, c *Compiled, o ApplyOptions, t plan.Target, choice string) (*Applied, error) {
	return in.applying(state, transaction{compiled: c, options: o, target: t, choice: choice}).apply(ctx)
}
