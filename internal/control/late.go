package control

import (
	"context"
	"fmt"

	"github.com/floodwall/floodwall/internal/codegen/nftables"
	"github.com/floodwall/floodwall/internal/netfilter"
	"github.com/floodwall/floodwall/internal/plan"
)

// At boot a device may appear later than its policy is brought back. Neither XDP nor the ingress hook knows a device that is not
// there. So until the policy is applied on it, a table of nftables holds the fail-safe at the stage filter for packets of the device,
// which it knows by its name. Packets of other devices, loopback among them, leave the table at once.

// lateTable is the table for devices that are not there yet.
func (in Instance) lateTable() string { return in.namePrefix() + "late" }

// CloseLate keeps devices closed by their names, whether they are there or not, but for what a fail-safe passes. It replaces what
// was closed before, in one transaction. The fail-safe should ask for no state: the device may never come, and as long as the table
// is there conntrack would follow all packets of the host.
func (in Instance) CloseLate(ctx context.Context, failsafe string, devices []string) error {
	n, err := netfilter.FindNft(ctx)
	if err != nil {
		return err
	}
	script, err := lateScript(failsafe, in.lateTable(), devices)
	if err != nil {
		return err
	}
	return n.Replace(ctx, in.lateTable(), script)
}

// lateScript compiles a fail-safe for the hooks before which IP delivers and routes nothing. It makes no checks: those of nftables
// are at ingress, which takes a device that is there. IP has put fragments for this host together by then.
func lateScript(text, table string, devices []string) (string, error) {
	c, err := CompileSource("fail-safe", []byte(text+"placement: filter\n"))
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

// LateDevices are the devices that CloseLate keeps closed.
func (in Instance) LateDevices(ctx context.Context) ([]string, error) {
	n, err := netfilter.FindNft(ctx)
	if err != nil {
		return nil, nil // there is no such table without nft
	}
	return n.InputDevices(ctx, in.lateTable())
}

// OpenLate ends CloseLate, as when the policy is in force on the devices. It reports whether there was anything to end.
func (in Instance) OpenLate(ctx context.Context) (opened bool, err error) {
	devices, err := in.LateDevices(ctx)
	if devices == nil || err != nil {
		return false, err
	}
	n, err := netfilter.FindNft(ctx)
	if err == nil {
		err = n.Remove(ctx, in.lateTable())
	}
	return err == nil, err
}
