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

// CloseLate keeps devices closed that are not there yet, as the policy's `boot:` says, and tells what becomes of them. Devices
// that were kept closed before stay so, unless the policy is in force on all but the missing ones.
func (h Host) CloseLate(ctx context.Context, p *policy.Policy, missing []string, inForce bool) (state string) {
	if missing == nil {
		return ""
	}
	if !p.BootClosed {
		return "open until they are filtered, as the policy says: boot: open"
	}
	held, err := h.LateDevices(ctx)
	if err == nil && (!covers(held, missing) || inForce && !covers(missing, held)) {
		texts, _ := boot.Open(h.State).Failsafe(missing)
		if texts == nil { // that of a copy before, which wants the host open
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

// OpenLate ends CloseLate when the policy is in force on all devices that it keeps closed; nil stands for all that there are.
func (h Host) OpenLate(ctx context.Context, filtered []string) error {
	held, err := h.LateDevices(ctx)
	if err == nil && held != nil && (filtered == nil || covers(filtered, held)) {
		_, err = h.Instance.OpenLate(ctx)
	}
	if err != nil {
		return fmt.Errorf("devices that appear late are still closed: %w", err)
	}
	return nil
}

// OpenFiltered ends CloseLate when a command was killed after it had applied the policy.
func (h Host) OpenFiltered(ctx context.Context) error {
	if held, err := h.LateDevices(ctx); held == nil || err != nil {
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

// covers reports whether all names of a list are in another one.
func covers(list, names []string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(list, n) })
}

// closeByName keeps devices closed by their names, whether they are there or not, but for what a fail-safe passes. It replaces what
// was closed before, in one transaction. The fail-safe should ask for no state: the device may never come, and as long as the table
// is there conntrack would follow all packets of the host.
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

// lateScript compiles a fail-safe for the hooks before which IP delivers and routes nothing. It makes no checks: those of nftables
// are at ingress, which takes a device that is there. IP has put fragments for this host together by then.
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
