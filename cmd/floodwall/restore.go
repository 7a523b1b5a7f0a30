package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/boot"
	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/operate"
	"github.com/floodwall/floodwall/internal/plan"
	"github.com/floodwall/floodwall/policy"
)

// restore applies what was saved for boot: the policy that was confirmed last; if that cannot be, the one that was confirmed
// before it; and if neither can, the fail-safe. Nothing of it reads the operator's files. Whatever is not the first is an
// error, so that the unit is seen to have failed.
func restore(ctx context.Context, e *env) error {
	in, err := e.host()
	if err != nil {
		return err
	}
	store := boot.Open(in.State)
	saved, err := store.Load()
	if errors.Is(err, boot.ErrNone) {
		return err
	}
	var tried bool
	if err == nil {
		if tried, err = e.restoreCopy(ctx, in, saved); tried || err == nil {
			return err
		}
	}
	// When this is not the first time since the host was started, as when a device appears, what replaced the copy goes on to.
	if now, notLoaded := in.Instance.Status(ctx); notLoaded == nil && !store.StoodIn(now.Boot, now.Policy) {
		return errors.Join(err, errors.New("the saved policy is not applied again: what runs stays"))
	}
	errs := []error{err}
	if saved, err = store.LoadPrevious(); err == nil {
		if tried, err = e.restoreCopy(ctx, in, saved); tried || err == nil {
			return errors.Join(append(errs, err, errors.New("the policy that was confirmed before is in force instead: apply one again"))...)
		}
	}
	if !errors.Is(err, boot.ErrNone) {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, e.restoreFailsafe(ctx, in, store))...)
}

// restoreCopy applies a copy. tried is whether an error ends the matter: that devices are not there yet is nothing that
// another policy would change.
func (e *env) restoreCopy(ctx context.Context, in operate.Host, saved *boot.Saved) (tried bool, err error) {
	p, err := saved.Policy()
	if err != nil {
		return false, err
	}
	return e.restorePolicy(ctx, in, p, saved.Options, saved.ID)
}

// restorePolicy applies a policy on those of its devices that there are.
func (e *env) restorePolicy(ctx context.Context, in operate.Host, p *policy.Policy, options boot.Options, id string) (tried bool, err error) {
	devices := options.Devices
	if devices == nil {
		devices = p.DeviceNames()
	}
	present, missing := split(devices, func(d string) bool { return datapath.DeviceExists(d) == nil })
	closed := in.CloseLate(ctx, p, missing, false)
	if len(present) == 0 {
		return true, fmt.Errorf("none of the policy's devices is there yet: %s (%s)", strings.Join(missing, ", "), closed)
	}
	applied, err := in.Instance.Apply(ctx, p, control.ApplyOptions{
		Target: plan.Target(options.Target), Devices: present, Mode: datapath.Mode(options.Mode), Boot: id, Costs: e.costs(),
	})
	if err != nil {
		return ctx.Err() != nil || errors.Is(err, datapath.ErrLocked), err
	}
	e.println("%s", appliedLine(applied, p, applyFlags{}))
	if missing != nil {
		closed = in.CloseLate(ctx, p, missing, true)
		return true, fmt.Errorf("not filtered, as they are not there yet: %s (%s)", strings.Join(missing, ", "), closed)
	}
	return true, in.OpenLate(ctx, nil)
}

// restoreFailsafe applies the fail-safe. It always returns an error, which says what is in force.
func (e *env) restoreFailsafe(ctx context.Context, in operate.Host, store boot.Store) error {
	texts, file := store.Failsafe(hardware())
	var errs []error
	for _, text := range texts {
		p, err := policy.Parse(file, []byte(text))
		if err == nil {
			_, err = e.restorePolicy(ctx, in, p, boot.Options{}, "")
		}
		if err == nil {
			return &hinted{fmt.Errorf("no saved policy could be loaded: %s is in force, which passes what is essential and SSH, and drops all else", file),
				"log in and apply a policy"}
		}
		errs = append(errs, err)
	}
	if texts == nil {
		return &hinted{errors.New("no saved policy could be loaded: nothing is filtered, as the policy says (boot: open)"), "apply a policy"}
	}
	return errors.Join(append(errs, errors.New("no saved policy could be loaded, nor the fail-safe: nothing is filtered"))...)
}

// hardware lists the devices of this host that are no software of it.
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
