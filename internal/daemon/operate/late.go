// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/policy"
)

// CloseLate blocks devices that do not exist yet, if the policy's `boot:` requires this. It returns the state of these devices, as text. Devices that
// were blocked before stay blocked, unless the policy is in force on all devices except the missing ones.
func (h Host) CloseLate(ctx context.Context, p *policy.Policy, missing []string, inForce bool) (state string) {
	if missing == nil {
		return ""
	}
	if !p.BootClosed {
		return "open until they are filtered, as the policy says: boot: open"
	}
	held, err := h.LateDevices()
	if err == nil && (!covers(held, missing) || inForce && !covers(missing, held)) {
		texts, _ := boot.Open(h.State).Failsafe(missing)
		if texts == nil { // the texts belong to an older copy, whose policy has boot: open
			return "open until they are filtered, as the saved fail-safe says"
		}
		stateless := texts[len(texts)-1]
		if inForce {
			held = nil
		}
		err = h.closeByName(ctx, stateless, append(held, missing...))
	}
	if err != nil {
		return fmt.Sprintf("open until they are filtered, as they cannot be kept closed: %v", err)
	}
	return "closed until they are filtered, but for SSH and what is essential"
}

// OpenLate removes the block of CloseLate when the policy is in force on all blocked devices. If filtered is nil, the policy is in force on all
// devices.
func (h Host) OpenLate(ctx context.Context, filtered []string) error {
	held, err := h.LateDevices()
	if err == nil && held != nil && (filtered == nil || covers(filtered, held)) {
		_, err = h.Instance.OpenLate(ctx)
	}
	if err != nil {
		return fmt.Errorf("devices that appear late are still closed: %w", err)
	}
	return nil
}

// OpenFiltered removes the block of CloseLate when a command was killed after it had applied the policy.
func (h Host) OpenFiltered(ctx context.Context) error {
	if held, err := h.LateDevices(); held == nil || err != nil {
		return err
	}
	now, err := h.Instance.Status(ctx)
	if err != nil {
		return err
	}
	filtered := []string{}
	for _, d := range now.Devices {
		filtered = append(filtered, d.Name)
	}
	return h.OpenLate(ctx, filtered)
}

// covers reports whether list contains every one of names.
func covers(list, names []string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(list, n) })
}

// closeByName blocks packets on devices by the devices' names, even if no such devices exist. It passes the packets that a fail-safe passes. It
// replaces the previous block in one transaction. The fail-safe should not use connection state: the device may never appear, and while the table
// exists, conntrack would track all packets of the host.
func (h Host) closeByName(ctx context.Context, failsafe string, devices []string) error {
	n, err := netfilter.FindNft(ctx)
	if err != nil {
		return err
	}
	script, err := lateScript(failsafe, h.LateTable(), devices)
	if err != nil {
		return err
	}
	return n.Replace(ctx, h.LateTable(), script)
}

// lateScript compiles a fail-safe for the hooks before local delivery and before routing. The script has no checks, because nftables has these at
// ingress, which needs an existing device. At these hooks IP has already reassembled fragments for this host.
func lateScript(text, table string, devices []string) (string, error) {
	c, err := control.CompileSource("fail-safe", []byte(text+"placement: filter\n"))
	if err != nil {
		return "", err
	}
	p := *c.Program
	p.Checks, p.Observed = 0, 0
	program, _ := plan.For(&p, plan.TargetNftables)
	stages, err := plan.Hoist(program, plan.TargetNftables)
	if err != nil {
		return "", fmt.Errorf("fail-safe: %w", err)
	}
	out, err := nftables.Generate(stages, nftables.Options{Table: table, Devices: devices})
	if err != nil {
		return "", fmt.Errorf("fail-safe: %w", err)
	}
	return out.Script, nil
}
