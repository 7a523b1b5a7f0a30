// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// Restore applies the policy that was saved for boot. It tries the policy that was confirmed last, then the one that was confirmed before, and then
// the fail-safe. It does not read the operator's files. Restore returns an error unless the first policy is applied, so that the systemd unit is
// marked as failed. told is called with the applied policy.
func (h Host) Restore(ctx context.Context, told func(*control.Applied, *policy.Policy)) error {
	store := boot.Open(h.State)
	saved, err := store.Load()
	if errors.Is(err, boot.ErrNone) {
		return err
	}
	var tried bool
	if err == nil {
		if tried, err = h.restoreCopy(ctx, saved, told); tried || err == nil {
			return err
		}
	}
	// If this call is not the first since the host started (for example because a device appeared), keep the policy that replaced the copy.
	if now, notLoaded := h.Instance.Status(ctx); notLoaded == nil && !store.StoodIn(now.Boot, now.Policy) {
		return errors.Join(err, errors.New("the saved policy is not applied again: what runs stays"))
	}
	errs := []error{err}
	if saved, err = store.LoadPrevious(); err == nil {
		if tried, err = h.restoreCopy(ctx, saved, told); tried || err == nil {
			return errors.Join(append(errs, err, errors.New("the policy that was confirmed before is in force instead: apply one again"))...)
		}
	}
	if !errors.Is(err, boot.ErrNone) {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, h.restoreFailsafe(ctx, store, told))...)
}

// restoreCopy applies a copy. tried is true if no other policy should be tried after an error, because another policy would not help against missing
// devices.
func (h Host) restoreCopy(ctx context.Context, saved *boot.Saved, told func(*control.Applied, *policy.Policy)) (tried bool, err error) {
	p, err := saved.Policy()
	if err != nil {
		return false, err
	}
	return h.restorePolicy(ctx, p, manifest.OriginOf(saved.File, saved.Text), saved.Options, saved.ID, told)
}

// restorePolicy applies a policy on those of its devices that exist.
func (h Host) restorePolicy(ctx context.Context, p *policy.Policy, origin *manifest.Origin, options boot.Options, id string,
	told func(*control.Applied, *policy.Policy)) (tried bool, err error) {
	devices := options.Devices
	if devices == nil {
		devices = p.DeviceNames()
	}
	present, missing := split(devices, func(d string) bool { return datapath.DeviceExists(d) == nil })
	closed := h.CloseLate(ctx, p, missing, false)
	if len(present) == 0 {
		return true, fmt.Errorf("none of the policy's devices is there yet: %s (%s)", strings.Join(missing, ", "), closed)
	}
	applied, err := h.Instance.Apply(ctx, p, control.ApplyOptions{
		Target: plan.Target(options.Target), Devices: present, Mode: datapath.Mode(options.Mode), Kept: datapath.Mode(options.Kept), Boot: id, Costs: h.Costs(),
		Origin: origin,
	})
	if err != nil {
		return ctx.Err() != nil || errors.Is(err, datapath.ErrLocked), err
	}
	told(applied, p)
	if missing != nil {
		closed = h.CloseLate(ctx, p, missing, true)
		return true, fmt.Errorf("not filtered, as they are not there yet: %s (%s)", strings.Join(missing, ", "), closed)
	}
	return true, h.OpenLate(ctx, nil)
}

// restoreFailsafe applies the fail-safe. It always returns an error, which describes what is in force.
func (h Host) restoreFailsafe(ctx context.Context, store boot.Store, told func(*control.Applied, *policy.Policy)) error {
	texts, file := store.Failsafe(hardware())
	var errs []error
	for _, text := range texts {
		p, err := policy.Parse(file, []byte(text))
		if err == nil {
			_, err = h.restorePolicy(ctx, p, nil, boot.Options{}, "", told)
		}
		if err == nil {
			return wording.Hinted(fmt.Sprintf("no saved policy could be loaded: %s is in force, which passes what is essential and SSH, and drops all else", file),
				"log in and apply a policy")
		}
		errs = append(errs, err)
	}
	if texts == nil {
		return wording.Hinted("no saved policy could be loaded: nothing is filtered, as the policy says (boot: open)", "apply a policy")
	}
	return errors.Join(append(errs, errors.New("no saved policy could be loaded, nor the fail-safe: nothing is filtered"))...)
}

// hardware lists the hardware devices of this host, without virtual ones.
func hardware() (names []string) {
	links, _ := netlink.LinkList()
	for _, l := range links {
		name := l.Attrs().Name
		if _, err := os.Stat("/sys/class/net/" + name + "/device"); err == nil && datapath.DeviceExists(name) == nil {
			names = append(names, name)
		}
	}
	return names
}

func split(list []string, is func(string) bool) (yes, no []string) {
	for _, s := range list {
		if is(s) {
			yes = append(yes, s)
		} else {
			no = append(no, s)
		}
	}
	return yes, no
}
